"""The bounded words that inputs are made of."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, StringConstraints


def storable(text: str) -> str:
    """Refuse what one of the databases could not hold. Raises ValueError."""
    if "\x00" in text:
        msg = "NUL characters are refused"
        raise ValueError(msg)
    try:
        text.encode()
    except UnicodeEncodeError:
        msg = "Text must be valid Unicode"
        raise ValueError(msg) from None
    return text


Storable = AfterValidator(storable)
Name = Annotated[str, StringConstraints(min_length=1, max_length=120), Storable]
Slug = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$", max_length=40)
]
Rationale = Annotated[str, StringConstraints(min_length=1, max_length=2_000), Storable]
OptionalRationale = Annotated[str, StringConstraints(max_length=2_000), Storable]
Address = Annotated[str, StringConstraints(min_length=1, max_length=500), Storable]
ModelId = Annotated[str, StringConstraints(min_length=1, max_length=120), Storable]
Pricing = Annotated[str, StringConstraints(max_length=200), Storable]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
#: A credential of an upstream. It is sealed, never shown, and hidden from every repr.
Credential = Annotated[SecretStr, Field(max_length=4_096)]
Password = Annotated[SecretStr, Field(min_length=1, max_length=256)]


class Input(BaseModel):
    """A body: unknown members are refused, so that a misspelt one is never silently dropped."""

    model_config = ConfigDict(extra="forbid")


class RationaleIn(Input):
    """Why somebody does this; it stays in the audit log."""

    rationale: Rationale


class ContainmentOut(Schema):
    """What a containment ended, and how many seconds the ending took."""

    seconds: float
    keys_revoked: int
    runs_stopped: int
    approvals_voided: int
