"""The one entry of the rules: a chat completion request in, an answer out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from project.demo.rules import answers, smalltalk
from project.demo.rules.arguments import fill
from project.demo.rules.choice import (
    helper_for,
    known_words,
    refused,
    stands_alone,
    unsupported,
    wanted_tools,
)
from project.demo.rules.dictation import ASKS_FOR_TEXT
from project.demo.rules.kinds import changes
from project.demo.rules.shapes import shaped
from project.demo.rules.turn import (
    BadRequest,
    Result,
    Tool,
    Turn,
    read_turn,
    without_question,
)
from project.demo.rules.voice import forbids, is_brief, knowledge, spoken

#: Calls that one request may lead to, whatever the results say.
MOST_CALLS: Final = 8


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
    turn = _settled(read_turn(body))
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


def _settled(turn: Turn) -> Turn:
    """Whether the last message replies to our question or turns to something else."""
    if not turn.question:
        return turn
    if ASKS_FOR_TEXT in turn.question:
        leaves = smalltalk.kind(turn.message) == "never mind"
    else:
        leaves = smalltalk.interrupts(turn) or stands_alone(turn)
    return without_question(turn) if leaves else turn


def _say(text: str, turn: Turn, *, is_offer: bool = False) -> Decision:
    return Decision(spoken(text.rstrip(), turn.instructions, is_question=is_offer))


def _act(turn: Turn) -> Decision | None:
    """Make the next call that the request needs, or say why not; None when nothing is to do."""
    if smalltalk.asks_to_count(turn.message):
        return None
    wanted = wanted_tools(turn)
    is_refused = bool(refused(turn.message)) or bool(unsupported(turn))
    if is_refused and not any(map(changes, wanted)):
        return None
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
        if helper := helper_for(turn, tool, filled.missing):
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
    if said := smalltalk.dictated(turn.message):
        return _say(said, turn)
    match smalltalk.kind(turn.message):
        case "":
            pass
        case "thanks":
            return _say("You are welcome.", turn)
        case kind:
            return _say(answers.small_talk(kind, turn), turn, is_offer=True)
    if refused(turn.message):
        return _say(answers.small_talk("never mind", turn), turn)
    change = unsupported(turn)
    fact = knowledge(turn.instructions, turn.message, known_words(turn.tools) - {change})
    if change:
        return _say(answers.unsupported(change, fact, turn), turn, is_offer=True)
    if fact:
        return _say(f"My instructions say: “{fact}”", turn)
    return _say(answers.at_a_loss(turn), turn, is_offer=True)


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
