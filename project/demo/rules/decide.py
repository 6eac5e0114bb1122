"""The one entry of the rules: a chat completion request in, an answer out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from project.demo.rules import answers, values
from project.demo.rules.arguments import fill
from project.demo.rules.choice import changes, helper_for, wanted_tools
from project.demo.rules.shapes import shaped
from project.demo.rules.turn import BadRequest, Result, Tool, Turn, read_turn
from project.demo.rules.voice import forbids, is_brief, knowledge, spoken
from project.demo.rules.words import plain_words

#: Calls that one request may lead to, whatever the results say.
MOST_CALLS: Final = 8
_GREETING: Final = re.compile(r"^\W*(?:hi|hello|hey|good (?:morning|day|evening))\b", re.IGNORECASE)
_WHO: Final = re.compile(
    r"\b(?:who|what) are you\b|\bare you (?:a |an )?(?:bot|ai|human|real|demo|model|person)"
    r"|\bwhat can you do\b|\bwhat do you do\b|^\W*help\W*$|\byour (?:instructions|rules)\b",
    re.IGNORECASE,
)
_THANKS: Final = re.compile(r"^\W*(?:thanks|thank you|great|perfect|cheers)\b", re.IGNORECASE)
_COUNT: Final = re.compile(r"\bcount (?:from \d+ )?(?:up )?to (\d{1,3})\b", re.IGNORECASE)
_ECHO: Final = re.compile(r"^\W*(?:please )?(?:say|repeat|echo)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    """One tool call of an answer."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Decision:
    """What the model says: text, or calls with perhaps a few words before them."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)


def decide(body: dict[str, Any]) -> Decision:
    """Answer a request. The same body always gives the same answer. Raises BadRequest."""
    turn = read_turn(body)
    forced = _forced(body, turn)
    if forced is not None:
        return _forced_call(forced, turn)
    if (schema := _response_schema(body)) is not None:
        return Decision(json.dumps(shaped(schema, turn), ensure_ascii=False))
    if body.get("tool_choice") != "none" and turn.tools and len(turn.results) < MOST_CALLS:
        decision = _act(turn)
        if decision is not None:
            return decision
    if turn.results:
        return _say(answers.report(turn.results, turn, brief=is_brief(turn.instructions)), turn)
    return _talk(turn)


def _say(text: str, turn: Turn) -> Decision:
    return Decision(spoken(text, turn.instructions))


def _act(turn: Turn) -> Decision | None:
    """Make the next call that the request needs, or say why not; None when nothing is to do."""
    wanted = wanted_tools(turn)
    if _has_stopped(turn.results):
        return None
    done = {result.tool for result in turn.results}
    for tool in (tool for tool in wanted if tool.name not in done):
        filled = fill(tool, turn)
        if filled.calls:
            for arguments in filled.calls:
                if sentence := forbids(turn.instructions, tool, arguments):
                    return _say(answers.forbidden(tool, sentence), turn)
            return Decision(calls=[Call(tool.name, arguments) for arguments in filled.calls])
        if helper := helper_for(turn, filled.missing):
            return Decision(calls=[Call(helper[0].name, dict(a)) for a in helper[1]])
        question = _reported(turn, wanted) + answers.ask(tool, filled)
        return Decision(spoken(question, turn.instructions, is_question=True))
    if not turn.results:
        return None
    return _say(_reported(turn, wanted), turn)


def _has_stopped(results: list[Result]) -> bool:
    """After a refusal or a failure nothing further is tried: the person is told first."""
    return any(answers.outcome(result) != "done" for result in results)


def _reported(turn: Turn, wanted: list[Tool]) -> str:
    """The results that were asked for; lookups made on the way are not worth telling."""
    names = {tool.name for tool in wanted}
    told = [result for result in turn.results if result.tool in names]
    if not told:
        return ""
    text = answers.report(told, turn, brief=is_brief(turn.instructions))
    return text if len(told) == len(turn.results) and _is_over(turn, names) else f"{text}\n\n"


def _is_over(turn: Turn, names: set[str]) -> bool:
    return names <= {result.tool for result in turn.results}


def _talk(turn: Turn) -> Decision:
    """No tool is meant: small talk, what the instructions know, or an honest shrug."""
    message = turn.message
    if count := _COUNT.search(message):
        return _say(", ".join(str(n) for n in range(1, int(count.group(1)) + 1)) + ".", turn)
    if _ECHO.search(message) and (quotes := values.quoted(message)):
        return _say(quotes[0], turn)
    if _WHO.search(message):
        return _say(answers.introduce(turn), turn)
    if _GREETING.search(message) and len(plain_words(message)) <= 6:
        return _say(f"Hello! {answers.introduce(turn)}", turn)
    if _THANKS.search(message):
        return _say("You are welcome.", turn)
    if sentence := knowledge(turn.instructions, message):
        return _say(f"My instructions say: “{sentence}”", turn)
    return _say(answers.at_a_loss(turn), turn)


def _forced(body: dict[str, Any], turn: Turn) -> Tool | None:
    """The tool that ``tool_choice`` demands, or the likeliest one when it only demands any."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        tool = turn.tool(str(name))
        if tool is None:
            raise BadRequest("tool_choice names a tool that is not offered")
        return tool
    if choice != "required":
        return None
    if not turn.tools:
        raise BadRequest("tool_choice requires a tool, and none is offered")
    return next(iter(wanted_tools(turn)), None) or next(
        (tool for tool in turn.tools if not changes(tool)), turn.tools[0]
    )


def _forced_call(tool: Tool, turn: Turn) -> Decision:
    calls = fill(tool, turn).calls or [shaped(tool.schema, turn)]
    return Decision(calls=[Call(tool.name, arguments) for arguments in calls])


def _response_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    wanted = body.get("response_format")
    if not isinstance(wanted, dict):
        return None
    if wanted.get("type") == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    if wanted.get("type") != "json_schema":
        return None
    schema = (wanted.get("json_schema") or {}).get("schema")
    if not isinstance(schema, dict):
        raise BadRequest("response_format.json_schema.schema must be a JSON schema")
    return schema
