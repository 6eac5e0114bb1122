"""One run: drives the agent library step by step and tells web everything as frames.

The order is the contract (see the wire): a message's frame comes when the message is complete, and
a call's result is shown to people only after the frame that keeps it for the model. Requests leave
before the library adds the instructions to them, so histories hold none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx2
from pydantic_ai import Agent, AgentRun, DeferredToolRequests, UsageLimits
from pydantic_ai.agent import CallToolsNode, ModelRequestNode
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolReturnPart,
)
from pydantic_ai.settings import ModelSettings
from pydantic_graph import End

from chat.runtime import codes, history
from chat.runtime.events import EventStream
from chat.runtime.model import GatewayModel, gateway_model
from chat.runtime.outbox import Outbox
from chat.runtime.settings import Settings
from chat.runtime.tools import ToolClient
from chat.runtime.toolset import GatewayToolset
from chat.runtime.wire import (
    EventFrame,
    FinalFrame,
    MessageFrame,
    ParkedHandoff,
    PendingApproval,
    RunRequest,
    Usage,
)

logger = logging.getLogger("chat.runtime.runner")

Output = str | DeferredToolRequests


class NothingToRun(codes.RunFailed):
    """No prompt, no open call, and the history ends with an answer."""

    code = codes.NOTHING_TO_RUN


@dataclass(frozen=True)
class Services:
    """What all runs of the process share."""

    settings: Settings
    http: httpx2.AsyncClient
    tools: ToolClient
    agent: Agent[None, Output]

    def model(self, slug: str, *, key: str) -> GatewayModel:
        """A virtual model, called with a run's key."""
        return gateway_model(slug=slug, url=self.settings.models_url, key=key, http=self.http)


def build_services(settings: Settings, http: httpx2.AsyncClient) -> Services:
    # A model that names a tool it was not given is told so; it costs a step like any other.
    agent = Agent(
        output_type=[str, DeferredToolRequests],
        name="mandate",
        deps_type=type(None),
        retries={"tools": 1_000, "output": 0},
    )
    services = Services(settings, http, ToolClient(http, settings.tools_url), agent)
    services.model("warm-up", key="none")  # loads what the first run would otherwise wait for
    return services


async def execute(request: RunRequest, services: Services, outbox: Outbox) -> None:
    """Run to its end and put every frame, one FinalFrame last. Only cancellation leaves early."""
    run = _Run(request, services, outbox)
    try:
        async with asyncio.timeout(request.deadline_seconds) as limit:
            final = await run.drive()
    except Exception as error:
        code = codes.DEADLINE if limit.expired() else run.failure_code(error)
        if code == codes.INTERNAL:
            logger.exception("run %s failed", request.run_id)
        run.close_events()
        final = FinalFrame(outcome="error", code=code, usage=run.usage)
    outbox.put(final)
    logger.info("run %s %s %s", request.run_id, final.outcome, final.code or "-")


class _Run:
    """The state of one run while it is driven."""

    def __init__(self, request: RunRequest, services: Services, outbox: Outbox) -> None:
        self._request = request
        self._services = services
        self._outbox = outbox
        self._events = EventStream()
        self._agent_run: AgentRun[None, Output] | None = None
        self._answer: ModelResponse | None = None
        self._returns = _Returns(self._put_message)

    @property
    def usage(self) -> Usage:
        """What the model requests of this run cost so far, as far as the gateway reported it."""
        if self._agent_run is None:
            return Usage()
        spent = self._agent_run.usage
        return Usage(
            requests=spent.requests,
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
        )

    def close_events(self) -> None:
        for event in self._events.close():
            self._outbox.put(EventFrame(event=event))

    def failure_code(self, error: BaseException) -> str:
        code = codes.code_of(error)
        if code == codes.MODEL_FAILED and self._answer is not None and not _says(self._answer):
            return codes.NO_OUTPUT
        return code

    async def drive(self) -> FinalFrame:
        request, services = self._request, self._services
        messages = history.load(request.history)
        pending = history.open_calls(messages)
        resumption = history.resume(messages, pending, request.resolutions) if pending else None
        if resumption is not None:
            messages = resumption.messages
            self._put_rewritten(resumption.rewritten)
        elif request.prompt is None and not (messages and isinstance(messages[-1], ModelRequest)):
            raise NothingToRun
        async with services.agent.iter(
            request.prompt,
            message_history=messages,
            deferred_tool_results=resumption.results if resumption else None,
            instructions=request.instructions or None,
            model=services.model(request.model, key=request.key),
            model_settings=ModelSettings(max_tokens=request.output_limit),
            usage_limits=UsageLimits(request_limit=request.max_steps),
            toolsets=[GatewayToolset(request.tools, client=services.tools, key=request.key)],
            infer_name=False,
        ) as self._agent_run:
            return await self._steps(self._agent_run)

    async def _steps(self, run: AgentRun[None, Output]) -> FinalFrame:
        node = run.next_node
        continues = self._request.prompt is None
        while not isinstance(node, End):
            if Agent.is_model_request_node(node):
                await self._ask_model(run, node)
            elif Agent.is_call_tools_node(node):
                await self._call_tools(run, node)
            asked = Agent.is_model_request_node(node)
            began = Agent.is_user_prompt_node(node)
            node = await run.next(node)
            if asked and Agent.is_call_tools_node(node):
                self._answer = node.model_response
                self._put_message(self._answer)
            elif Agent.is_model_request_node(node) and not (began and continues):
                self._returns.complete(node.request)
        return self._final(node.data.output)

    async def _ask_model(
        self, run: AgentRun[None, Output], node: ModelRequestNode[None, Output]
    ) -> None:
        self._answer = None
        self._events.begin_answer()
        async with node.stream(run.ctx) as stream:
            async for item in stream:
                for event in self._events.on_model_event(item):
                    self._outbox.put(EventFrame(event=event))
                await self._outbox.room()
        self.close_events()

    async def _call_tools(
        self, run: AgentRun[None, Output], node: CallToolsNode[None, Output]
    ) -> None:
        self._returns.begin(node.model_response)
        async with node.stream(run.ctx) as stream:
            async for item in stream:
                if isinstance(item, FunctionToolResultEvent):
                    self._returns.add(item.part)
                    self._outbox.put(EventFrame(event=self._events.result(item.part)))
                    await self._outbox.room()

    def _put_message(self, message: ModelMessage, replaces: int = 0) -> None:
        self._outbox.put(MessageFrame(message=history.dump(message), replaces=replaces))

    def _put_rewritten(self, messages: Sequence[ModelMessage]) -> None:
        for position, message in enumerate(messages):
            self._put_message(message, len(messages) if position == 0 else 0)

    def _final(self, output: Output) -> FinalFrame:
        if not isinstance(output, DeferredToolRequests):
            return FinalFrame(outcome="success", usage=self.usage)
        approvals = [
            PendingApproval(
                tool_call_id=call.tool_call_id,
                approval_id=output.metadata[call.tool_call_id]["approval"],
            )
            for call in output.approvals
        ]
        parked = [
            ParkedHandoff(
                tool_call_id=call.tool_call_id,
                handoff_id=output.metadata[call.tool_call_id]["handoff"],
            )
            for call in output.calls
        ]
        return FinalFrame(outcome="interrupt", approvals=approvals, parked=parked, usage=self.usage)


class _Returns:
    """The returns of one answer's calls, kept as they come: one message that grows.

    Calls run in parallel. If only the finished step were kept, a crash while the second call runs
    would lose the first one's result after people saw it.
    """

    def __init__(self, put: Callable[[ModelMessage, int], None]) -> None:
        self._put = put
        self._order: dict[str, int] = {}
        self._parts: list[ToolReturnPart] = []

    def begin(self, answer: ModelResponse) -> None:
        self._order = {call.tool_call_id: i for i, call in enumerate(answer.tool_calls)}
        self._parts = []

    def add(self, part: ToolReturnPart) -> None:
        replaces = 1 if self._parts else 0
        self._parts.append(part)
        self._parts.sort(key=lambda p: self._order.get(p.tool_call_id, len(self._order)))
        self._put(ModelRequest(parts=list(self._parts)), replaces)

    def complete(self, request: ModelRequest) -> None:
        """The step's request, when it holds more than the returns: a prompt, alone or beside."""
        parts: list[ModelRequestPart] = list(self._parts)
        if list(request.parts) != parts:
            self._put(request, 1 if self._parts else 0)
        self._parts = []


def _says(answer: ModelResponse) -> bool:
    """Whether an answer has anything to act on or to show."""
    text = any(isinstance(part, TextPart) and part.content for part in answer.parts)
    return text or bool(answer.tool_calls)
