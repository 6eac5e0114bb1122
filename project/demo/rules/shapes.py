"""Values that obey a JSON schema, made from the words of the prompt."""

from __future__ import annotations

import re
from typing import Any, Final

from project.demo.rules import values
from project.demo.rules.kinds import kind_of, schema_type
from project.demo.rules.turn import Turn
from project.demo.rules.words import is_small, meanings, plain_words, split_name

_DEPTH: Final = 12
_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "nobody@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def shaped(schema: dict[str, Any], turn: Turn) -> Any:
    """A value that *schema* accepts. Patterns are honoured only where the prompt holds a match."""
    return _Shaper(schema, turn).make(schema, "", 0)


class _Shaper:
    def __init__(self, root: dict[str, Any], turn: Turn) -> None:
        self.root = root
        self.text = f"{turn.instructions}\n{turn.request}"
        self.turn = turn
        words = [w for w in plain_words(turn.request or turn.instructions) if not is_small(w)]
        self.words = list(dict.fromkeys(w.lower() for w in words if len(w) > 3)) or ["demo"]

    def make(self, schema: Any, name: str, depth: int) -> Any:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chosen(schema["enum"])
        match schema_type(schema) if schema else "string":
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer":
                return int(self._number(schema, name, whole=True))
            case "number":
                return self._number(schema, name, whole=False)
            case "boolean":
                return bool(set(meanings(split_name(name))) & set(meanings(self.turn.request)))
            case "null":
                return None
            case _:
                return self._string(schema, name)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Follow references, take the first branch that is not null, merge ``allOf``."""
        for _ in range(_DEPTH):
            if not isinstance(schema, dict):
                return {}
            if isinstance(reference := schema.get("$ref"), str):
                schema = self._referenced(reference)
                continue
            branches = [b for key in ("anyOf", "oneOf") for b in schema.get(key, ())]
            if branches:
                schema = next((b for b in branches if b.get("type") != "null"), branches[0])
                continue
            if schema.get("allOf"):
                parts = [self._resolved(part) for part in schema["allOf"]]
                schema = _merged([*parts, {k: v for k, v in schema.items() if k != "allOf"}])
                continue
            if "type" not in schema and "properties" in schema:
                return {**schema, "type": "object"}
            return schema
        return {}

    def _referenced(self, reference: str) -> Any:
        target: Any = self.root
        for part in reference.removeprefix("#").strip("/").split("/"):
            if part:
                target = target.get(part, {}) if isinstance(target, dict) else {}
        return target

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        # Deep optional parts are left out, or a schema that names itself would never end.
        shown = [n for n in properties if n in required or depth < 3]
        made = {n: self.make(properties[n], n, depth + 1) for n in shown if depth < _DEPTH}
        for missing in required - set(made):
            made[missing] = self._string({}, missing)
        return made

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", 8)
        items = self._resolved(schema.get("items", {}))
        if items.get("enum"):
            found = [o for o in items["enum"] if str(o).casefold() in self.text.casefold()]
            found = found or items["enum"][: max(least, 1)]
        elif schema_type(items) == "string" and "format" not in items:
            found = [_cut(word, items) for word in self._terms(name)]
        else:
            # A list of things that hold such lists themselves ends early.
            count = max(least, 1) if depth < 2 else least
            found = [self.make(items, name, depth + 1) for _ in range(count)]
        found = found[:most]
        while len(found) < least:
            extra = f"{found[0]} {len(found) + 1}" if found and isinstance(found[0], str) else None
            found.append(extra or self.make(items, name, depth + 1))
        return found

    def _terms(self, name: str) -> list[str]:
        """Identifiers where tools are asked for; otherwise what the prompt speaks of."""
        if re.search(r"tool|capabilit|function", name, re.IGNORECASE):
            found = list(dict.fromkeys(re.findall(r"\b[a-z0-9]+(?:_+[a-z0-9]+)+\b", self.text)))
            return found[:8]
        return self.words[:3]

    def _chosen(self, options: list[Any]) -> Any:
        text = self.turn.request.casefold()
        return next((o for o in options if o is not None and str(o).casefold() in text), options[0])

    def _number(self, schema: dict[str, Any], name: str, *, whole: bool) -> float:
        kind = kind_of(name, schema)
        text = self.turn.request
        found: list[Any] = list(values.ids(text)) if kind == "identity" else values.amounts(text)
        number = float(next(iter(found), 0))
        step = 1.0 if whole else 0.5
        if (low := schema.get("exclusiveMinimum")) is not None:
            number = max(number, low + step)
        if (high := schema.get("exclusiveMaximum")) is not None:
            number = min(number, high - step)
        number = max(number, schema.get("minimum", number))
        number = min(number, schema.get("maximum", number))
        if multiple := schema.get("multipleOf"):
            number = -(-number // multiple) * multiple
        return float(number)

    def _string(self, schema: dict[str, Any], name: str) -> str:
        if schema.get("format") in _FORMATS:
            found = {"email": values.emails, "date": values.dates}.get(schema["format"])
            return (
                next(iter(found(self.text)), "")
                if found and found(self.text)
                else _FORMATS[schema["format"]]
            )
        if pattern := schema.get("pattern"):
            candidates = [schema.get("default", ""), *re.findall(r"\S+", self.text)]
            return next((c for c in candidates if c and re.search(pattern, c)), "")
        topics = ", ".join(self.words[:3])
        label = split_name(name).lower() or "answer"
        return _cut(f"Demo {label}: {topics}.", schema)


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", ()), *part.get("required", ())]
        merged = {**merged, **part}
        if properties:
            merged.update(type="object", properties=properties, required=required)
    return merged


def _cut(text: str, schema: dict[str, Any]) -> str:
    text = text[: schema.get("maxLength", len(text))]
    return text.ljust(schema.get("minLength", 0), ".")
