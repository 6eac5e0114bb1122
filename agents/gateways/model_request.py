"""A chat completion request: what is checked, what is refused, and what goes upstream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from agents.errors import Invalid, ParameterNotAllowed
from agents.gateways.model_content import check_contents
from agents.policy import ModelRow

MAX_BODY_BYTES = 4 * 2**20
#: No tokenizer makes fewer than one token of this many bytes; a longer input cannot fit.
BYTES_PER_TOKEN = 8

#: Parameters that go to the provider as they came. Others are refused, because servers know many
#: more: some lift the output limit, some make the server fetch, keep or run something, some cost.
PASSED = frozenset(
    {
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "messages",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "verbosity",
    }
)
#: Parameters that the gateway itself reads, and writes or leaves out.
OWN = frozenset({"max_completion_tokens", "max_tokens", "model", "store", "user"})
#: What a refusal repeats of a name that the caller chose.
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}", re.ASCII)
LIMITS = ("max_tokens", "max_completion_tokens")
#: Tools that the caller runs itself; any other kind would run at the provider.
CLIENT_TOOLS = frozenset({"function", "custom"})


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A body that passed the checks. ``size`` is its bytes as they were received."""

    document: dict[str, Any]
    size: int
    model: str
    stream: bool
    #: Whether the caller itself asked for usage in the stream.
    wants_usage: bool


def read_chat(document: Any, size: int) -> ChatRequest:
    """Check a parsed body. Raises Invalid, which names the field and repeats no value."""
    if not isinstance(document, dict):
        raise Invalid("The body must be a JSON object.")
    model, messages = document.get("model"), document.get("messages")
    if not isinstance(model, str) or not model:
        raise Invalid("Name a model.", field="model")
    if not isinstance(messages, list) or not messages:
        raise Invalid("Send at least one message.", field="messages")
    if not all(isinstance(message, dict) for message in messages):
        raise Invalid("Each message is an object.", field="messages")
    check_contents(messages)
    answers = document.get("n")
    if answers is not None and not (type(answers) is int and answers == 1):
        raise Invalid("One answer is given for each request.", field="n")
    for name in LIMITS:
        if not _is_limit(document.get(name)):
            raise Invalid("The limit is a whole number of tokens, 1 or more.", field=name)
    _check_tools(document)
    _check_names(document)
    stream, options = document.get("stream"), document.get("stream_options")
    if stream is not None and not isinstance(stream, bool):
        raise Invalid("This is true or false.", field="stream")
    if options is not None and not isinstance(options, dict):
        raise Invalid("This is an object.", field="stream_options")
    return ChatRequest(
        document=document,
        size=size,
        model=model,
        stream=bool(stream),
        wants_usage=bool((options or {}).get("include_usage")),
    )


def _check_names(document: dict[str, Any]) -> None:
    """Null means "not sent" for every parameter, and false means "do not store"."""
    for name, value in document.items():
        known = name in PASSED or name in OWN
        if value is None or (known and not (name == "store" and value is not False)):
            continue
        named = {"field": name} if PLAIN_NAME.fullmatch(name) else {}
        raise ParameterNotAllowed(**named)


def _is_limit(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 1)


def _check_tools(document: dict[str, Any]) -> None:
    tools = document.get("tools")
    if tools is None:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Invalid("Tools are a list of objects.", field="tools")
    kinds = {tool.get("type") if isinstance(tool.get("type"), str) else "" for tool in tools}
    if kinds - CLIENT_TOOLS:
        raise Invalid("Only tools that the caller runs itself are passed on.", field="tools")


def has_tools(request: ChatRequest) -> bool:
    """Whether the model is offered anything to call."""
    return bool(request.document.get("tools") or request.document.get("functions"))


def upstream_body(request: ChatRequest, model: ModelRow) -> bytes:
    """The body for the provider: its own name of the model, our limits, usage always reported.

    The output limit is one parameter, the one that this provider knows: it ignores or refuses the
    other, whichever of them the caller sent.
    """
    given = request.document
    document = {
        name: value for name, value in given.items() if name in PASSED and value is not None
    }
    document["model"] = model.upstream_model
    asked = [given[name] for name in LIMITS if given.get(name) is not None]
    document[model.output_limit_parameter] = min([*asked, model.output_limit])
    if given.get("store") is False:
        document["store"] = False
    if request.stream:
        document["stream_options"] = {
            **(document.get("stream_options") or {}),
            "include_usage": True,
        }
    return orjson.dumps(document)
