"""Reading a schema without its patterns never refuses what the whole schema accepts."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from agents.errors import ArgumentsInvalid
from agents.gateways.mcp_arguments import check_arguments_blocking

JSON = dict[str, Any]


def accepts(schema: JSON, value: Any) -> bool:
    """Whether the gateway lets *value* through where *schema* is asked for."""
    whole = {"type": "object", "properties": {"x": schema}}
    digest = hashlib.sha256(json.dumps(whole).encode()).hexdigest()
    try:
        check_arguments_blocking({"x": value}, schema=whole, digest=digest)
    except ArgumentsInvalid:
        return False
    return True


PATTERN = {"type": "string", "pattern": "^a"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"not": PATTERN}, "b"),
        ({"not": {"allOf": [PATTERN]}}, "b"),
        ({"not": {"$ref": "#/properties/x/$defs/p"}, "$defs": {"p": PATTERN}}, "b"),
        ({"not": {"not": {"not": PATTERN}}}, "b"),
        ({"oneOf": [PATTERN, {"type": "string", "pattern": "^b"}]}, "b"),
        ({"oneOf": [{"type": "string", "format": "date"}, {"type": "string"}]}, "b"),
        ({"if": PATTERN, "then": {"minLength": 9}}, "b"),
        ({"if": PATTERN, "then": {"minLength": 9}, "else": {"maxLength": 2}}, "b"),
        ({"contains": PATTERN, "maxContains": 1}, ["a", "b", "b"]),
        ({"not": {"patternProperties": {"^a": {"type": "null"}}}}, {"a": 1}),
        ({"not": {"additionalProperties": False, "patternProperties": {"^a": {}}}}, {"b": 1}),
        ({"not": {"uniqueItems": True}}, [1, 1.0]),
        ({"not": {"unevaluatedProperties": False}}, {"a": 1}),
        ({"not": {"unevaluatedItems": False}}, [1]),
    ],
)
def test_what_only_a_pattern_could_tell_is_left_to_the_server(schema: JSON, value: Any) -> None:
    assert Draft202012Validator(
        {"properties": {"x": schema}}, format_checker=FormatChecker()
    ).is_valid({"x": value})
    assert accepts(schema, value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"oneOf": [PATTERN, {"type": "null"}]}, 1),
        ({"if": PATTERN, "then": {"type": "string"}, "else": {"type": "null"}}, 1),
        ({"contains": {"type": "string", "format": "date"}, "minContains": 2}, ["a", 1]),
        ({"type": "string", "pattern": "^a", "maxLength": 2}, "abc"),
        ({"allOf": [{"not": PATTERN}, {"type": "integer"}]}, "b"),
        # Without such a keyword everything is read to the letter.
        ({"not": {"type": "string"}}, "b"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "b"),
        ({"if": {"type": "string"}, "then": {"minLength": 9}}, "b"),
        ({"contains": {"type": "string"}, "maxContains": 1}, ["a", "b"]),
    ],
)
def test_what_no_pattern_could_mend_is_refused(schema: JSON, value: Any) -> None:
    assert not accepts(schema, value)


LEAVES = st.sampled_from(
    [
        True,
        False,
        {"type": "string"},
        {"type": ["integer", "null"]},
        {"enum": ["a", 1, [1]]},
        {"pattern": "^a"},
        {"pattern": "b$"},
        {"format": "date"},
        {"minLength": 2},
        {"uniqueItems": True},
        {"maxItems": 1},
        {"required": ["a"]},
        {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
    ]
)


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    pair = st.fixed_dictionaries({"a": inner, "b": inner})
    return st.one_of(
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"oneOf": several}),
        st.fixed_dictionaries({"anyOf": several}),
        st.fixed_dictionaries({"allOf": several}),
        st.fixed_dictionaries({"if": inner}, optional={"then": inner, "else": inner}),
        st.fixed_dictionaries(
            {"contains": inner},
            optional={"minContains": st.integers(0, 2), "maxContains": st.integers(0, 2)},
        ),
        st.fixed_dictionaries({"items": inner}, optional={"prefixItems": several}),
        st.fixed_dictionaries({"properties": pair}, optional={"additionalProperties": inner}),
        st.fixed_dictionaries({"anyOf": several, "unevaluatedItems": inner}),
        st.fixed_dictionaries({"anyOf": several, "unevaluatedProperties": inner}),
        st.fixed_dictionaries({"propertyNames": inner}),
        st.fixed_dictionaries({"dependentSchemas": pair}),
    )


VALUES = st.recursive(
    st.sampled_from(["a", "b", "ab", "2026-01-01", 1, 1.0, True, None]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=2),
    ),
    max_leaves=4,
)


@settings(max_examples=400)
@given(st.recursive(LEAVES, compound, max_leaves=6), VALUES)
def test_it_accepts_whatever_the_whole_schema_accepts(schema: Any, value: Any) -> None:
    for formats in (None, FormatChecker()):
        if Draft202012Validator(schema, format_checker=formats).is_valid(value):
            assert accepts(schema, value)
