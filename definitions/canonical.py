"""A definition and its canonical bytes: what digests are taken over. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
import rfc8785

from agents.errors import DamagedContent

#: UTF-8 bytes of instructions.
INSTRUCTIONS_LIMIT = 65_536
TOOLS_LIMIT = 200
#: Kind of the blobs that hold definitions.
KIND = "definition"


@dataclass(frozen=True, slots=True)
class Definition:
    """Exactly instructions, one virtual model, a tool allowlist (sorted, without repeats)."""

    instructions: str
    virtual_model_id: UUID | None
    tool_ids: tuple[UUID, ...]

    @classmethod
    def of(
        cls, instructions: str, virtual_model_id: UUID | None, tool_ids: Iterable[UUID]
    ) -> Definition:
        return cls(instructions, virtual_model_id, tuple(sorted(set(tool_ids))))

    def to_bytes(self) -> bytes:
        """RFC 8785 JSON of the three members."""
        model = self.virtual_model_id
        return rfc8785.dumps(
            {
                "instructions": self.instructions,
                "model": None if model is None else str(model),
                "tools": [str(t) for t in self.tool_ids],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Definition:
        """Read canonical bytes. Raises DamagedContent for anything else."""
        try:
            members: dict[str, Any] = orjson.loads(data)
            model = members["model"]
            definition = cls.of(
                str(members["instructions"]),
                None if model is None else UUID(model),
                (UUID(t) for t in members["tools"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DamagedContent from None
        if definition.to_bytes() != data:
            raise DamagedContent
        return definition
