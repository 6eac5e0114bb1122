"""The model behind the gateway, for the agent library: any OpenAI-wire model, nothing assumed.

The library tunes requests by guessing from a model's name. A virtual model's slug says nothing
about what is behind it, so the profile here is fixed, and the gateway adapts what must be adapted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import uuid4

import httpx2
from openai import AsyncOpenAI
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDeltaToolCall
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider


def _profile(_model_name: str) -> ModelProfile:
    return OpenAIModelProfile(
        json_schema_transformer=None,
        # An answer that stops without saying why was cut, and must not pass for a whole one.
        openai_chat_streaming_requires_finish_reason=True,
        openai_supports_strict_tool_definition=False,
    )


@dataclass
class OwnCallIds(OpenAIStreamedResponse):
    """A streamed answer whose tool calls carry ids of ours.

    Models reuse ids ("call_0" in every turn, or twice in one answer). Approvals, results and
    events are tied to a call by its id, so each call gets one that no other call ever has.
    """

    _calls: dict[tuple[int, str], tuple[int, str]] = field(default_factory=dict, init=False)
    _latest: dict[int, tuple[int, str]] = field(default_factory=dict, init=False)

    def _map_tool_call_delta(self, choice: Choice) -> Iterable[ModelResponseStreamEvent]:
        deltas = [self._own(delta) for delta in choice.delta.tool_calls or []]
        delta = choice.delta.model_copy(update={"tool_calls": deltas})
        return super()._map_tool_call_delta(choice.model_copy(update={"delta": delta}))

    def _own(self, delta: ChoiceDeltaToolCall) -> ChoiceDeltaToolCall:
        """The delta under our index and id. A name with another provider id begins a new call."""
        given = delta.index or 0
        known = self._latest.get(given)
        named = delta.function is not None and delta.function.name
        if known is None or (named and delta.id and (given, delta.id) not in self._calls):
            known = (len(self._calls), f"call_{uuid4().hex}")
            self._calls[given, delta.id or ""] = self._latest[given] = known
        return delta.model_copy(update={"index": known[0], "id": known[1]})


class GatewayModel(OpenAIChatModel):
    """A chat model whose streamed tool calls carry ids of ours."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return OwnCallIds


def gateway_model(*, slug: str, url: str, key: str, http: httpx2.AsyncClient) -> GatewayModel:
    """The virtual model ``slug`` at the gateway's ``url``, called with a run's ``key``."""
    client = AsyncOpenAI(base_url=url, api_key=key, max_retries=0, http_client=http)
    provider = OpenAICompatibleProvider("mandate", openai_client=client, profile=_profile)
    return GatewayModel(slug, provider=provider)
