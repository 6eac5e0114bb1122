"""Arguments against a tool's accepted input schema, within bounds that no schema can stretch.

A schema is a tool server's text. So nothing is fetched for it, its regular expressions are not
run (one of them can hold a process for hours) and evaluation ends after a fixed number of steps.
Whatever is left out here can only make the gateway accept more; the tool server still judges.

For that to hold, a schema that uses a keyword of UNCHECKED anywhere is also read without what
turns "accepts more" into "accepts less": ``not`` accepts, ``oneOf`` is ``anyOf``, ``if`` accepts
what either branch does, ``contains`` has no upper bound. Everything else of it is checked.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import orjson
import rfc8785
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from agents.errors import ArgumentsInvalid, ToolUnavailable

#: Keywords applied in one validation, which takes about a second at worst. A plain form with ten
#: fields needs thirty; what needs more than the quick ones is done again in a thread.
MAX_STEPS = 50_000
QUICK_STEPS = 500
#: Compiled schemas kept, by the tool's digest, which covers the schema.
KEPT = 256
#: Characters of a schema's own rule that a refusal may quote.
QUOTED = 200

#: Keywords that are not applied, or not to the letter, and so accept more than they should.
UNCHECKED = frozenset(
    {
        "format",
        "pattern",
        "patternProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)

Keyword = Callable[[Validator, Any, Any, Any], Any]

_steps_left: contextvars.ContextVar[list[int]] = contextvars.ContextVar("steps_left")


class _TooManySteps(Exception):
    """The schema and the arguments together are more work than a call may cause."""


async def check_arguments(
    arguments: Mapping[str, Any], *, schema: dict[str, Any], digest: str
) -> None:
    """Raise ArgumentsInvalid unless *arguments* fit; *digest* is the tool's, which names *schema*.

    The refusal's ``path`` and ``rule`` say where and which keyword, and quote no argument. Raises
    ToolUnavailable for a schema that cannot be evaluated.
    """
    if digest in _validators:
        with suppress(_TooManySteps):
            check_arguments_blocking(arguments, schema=schema, digest=digest, steps=QUICK_STEPS)
            return
    await asyncio.to_thread(check_arguments_blocking, arguments, schema=schema, digest=digest)


def check_arguments_blocking(
    arguments: Mapping[str, Any],
    *,
    schema: dict[str, Any],
    digest: str,
    steps: int = MAX_STEPS,
) -> None:
    """:func:`check_arguments` for threads."""
    try:
        rfc8785.dumps(dict(arguments))
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError):
        raise ArgumentsInvalid(rule="json") from None
    validator = _validators.get(digest) or _compile(digest, schema)
    try:
        _evaluate(validator, arguments, steps)
    except _TooManySteps:
        if steps < MAX_STEPS:
            raise
        raise ArgumentsInvalid(rule="complexity") from None


def _evaluate(validator: Validator, arguments: Mapping[str, Any], steps: int) -> None:
    token = _steps_left.set([steps])
    try:
        error = next(validator.iter_errors(dict(arguments)), None)
    except (RecursionError, OverflowError):
        raise ArgumentsInvalid(rule="complexity") from None
    except (Unresolvable, UnknownType):
        raise ToolUnavailable from None
    finally:
        _steps_left.reset(token)
    if error is not None:
        raise _invalid(error)


def _invalid(error: ValidationError) -> ArgumentsInvalid:
    path = "".join(f"/{part}" for part in error.absolute_path)
    extra = {"path": path[:QUOTED], "rule": str(error.validator)}
    expected = orjson.dumps(error.validator_value, default=str).decode()
    if len(expected) <= QUOTED:
        extra["expected"] = expected
    return ArgumentsInvalid(**extra)


# --- compiling ------------------------------------------------------------------------------

_validators: dict[str, Validator] = {}


def _compile(digest: str, schema: dict[str, Any]) -> Validator:
    base = validator_for(schema, default=Draft202012Validator)
    plain = {name: value for name, value in schema.items() if name != "$schema"}
    if _changes_dialect(plain):
        raise ToolUnavailable
    try:
        base.check_schema(schema)
    except (SchemaError, RecursionError, Unresolvable):
        raise ToolUnavailable from None
    while len(_validators) >= KEPT:
        _validators.pop(next(iter(_validators)))
    dialect = _lenient(base) if _uses_unchecked(plain) else _bounded(base)
    validator = dialect(plain, registry=Registry())
    _validators[digest] = validator
    return validator


def _changes_dialect(value: Any) -> bool:
    """Whether a part names a dialect of its own, which would escape the bounded keywords."""
    if isinstance(value, dict):
        return isinstance(value.get("$schema"), str) or any(map(_changes_dialect, value.values()))
    return isinstance(value, list) and any(map(_changes_dialect, value))


def _uses_unchecked(value: Any) -> bool:
    """Whether a name of UNCHECKED stands anywhere; where it is no keyword, nothing is lost."""
    if isinstance(value, dict):
        return not UNCHECKED.isdisjoint(value) or any(map(_uses_unchecked, value.values()))
    return isinstance(value, list) and any(map(_uses_unchecked, value))


@cache
def _bounded(base: type[Validator]) -> type[Validator]:
    """A dialect whose keywords count their steps, without regular expressions."""
    keywords: dict[str, Keyword] = {name: _counted(fn) for name, fn in base.VALIDATORS.items()}
    for name in UNCHECKED - {"uniqueItems"}:
        keywords[name] = _accept
    keywords["additionalProperties"] = _unless_patterns(keywords["additionalProperties"])
    keywords["uniqueItems"] = _counted(_unique_items)
    bounded: type[Validator] = extend(base, keywords)  # type: ignore[no-untyped-call]
    return bounded


@cache
def _lenient(base: type[Validator]) -> type[Validator]:
    """The bounded dialect in which accepting a part more never accepts the whole less."""
    bounded = _bounded(base)
    keywords: dict[str, Keyword] = {"not": _accept, "disallow": _accept, "if": _accept}
    any_of = bounded.VALIDATORS.get("anyOf")
    if any_of is not None:
        keywords["oneOf"] = any_of
        keywords["if"] = _either_branch(any_of)
    contains = bounded.VALIDATORS.get("contains")
    if contains is not None:
        keywords["contains"] = _at_least(contains)
    lenient: type[Validator] = extend(bounded, keywords)  # type: ignore[no-untyped-call]
    return lenient


def _either_branch(any_of: Keyword) -> Keyword:
    """Without knowing the condition, what either branch accepts; a missing branch accepts all."""

    def either(validator: Validator, _condition: Any, instance: Any, schema: Any) -> Any:
        if "then" not in schema or "else" not in schema:
            return None
        return any_of(validator, [schema["then"], schema["else"]], instance, schema)

    return either


def _at_least(contains: Keyword) -> Keyword:
    """``contains`` with its lower bound alone."""

    def at_least(validator: Validator, value: Any, instance: Any, schema: Any) -> Any:
        return contains(validator, value, instance, {"minContains": schema.get("minContains", 1)})

    return at_least


def _counted(keyword: Keyword) -> Keyword:
    def counted(validator: Validator, value: Any, instance: Any, schema: Any) -> Any:
        left = _steps_left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooManySteps
        return keyword(validator, value, instance, schema)

    return counted


def _accept(_validator: Validator, _value: Any, _instance: Any, _schema: Any) -> None:
    return None


def _unless_patterns(keyword: Keyword) -> Keyword:
    """What patterns allow is unknown here, so beside them nothing counts as additional."""

    def unless(validator: Validator, value: Any, instance: Any, schema: Any) -> Any:
        return (
            None if "patternProperties" in schema else keyword(validator, value, instance, schema)
        )

    return unless


def _unique_items(
    validator: Validator, unique: Any, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    """One pass; the library's own compares each item with every other."""
    if unique and validator.is_type(instance, "array"):
        seen = {orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in instance}
        if len(seen) != len(instance):
            yield ValidationError("items repeat")
