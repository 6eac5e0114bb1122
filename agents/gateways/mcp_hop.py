"""Visits to the database that decide over tool calls: who calls, what, and whether it may."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from django.db.backends.utils import CursorWrapper

from agents.choices import RequestState
from agents.digests import credential_mac
from agents.errors import DomainError, KeyDead, OutOfScope, ToolUnavailable
from agents.gateways.request_rows import CallRecord
from agents.policy import KeyRow, Rights, ToolRow
from agents.selectors.rights import is_withheld, read_key, rights_of_key
from agents.services.connectors import is_current
from agents.services.first_party import CONNECTOR
from agents.writer import get_writer

FIRST_PARTY = f"{CONNECTOR}__"


@dataclass(frozen=True, slots=True)
class Admission:
    """A tool call that was allowed when it was looked at; its request row is open."""

    key_text: str = field(repr=False)
    rights: Rights
    tool: ToolRow
    record: CallRecord
    #: The connector's list was read recently enough to trust the row.
    current: bool

    @property
    def key(self) -> KeyRow:
        return self.rights.key


async def admit(
    key_text: str, name: str, record: CallRecord, *, list_within: dt.timedelta
) -> Admission:
    """Authorise a call and open its row in one durable step, or raise what refuses it.

    A refusal of a known key leaves a row; an unknown key leaves none.
    """

    def operation(cursor: CursorWrapper) -> Admission | DomainError:
        key = known_key(cursor, key_text)
        try:
            rights = _rights(cursor, key, name)
            tool = _granted_tool(cursor, rights, name)
        except DomainError as error:
            # The name that was asked for is the caller's text, and stays out of the row.
            record.refuse(cursor, key, error)
            return error
        record.open(cursor, key, resource_id=tool.id, resource_name=tool.exposed_name)
        current = tool.first_party or is_current(cursor, tool.connector_id, within=list_within)
        return Admission(key_text, rights, tool, record, current)

    result = await get_writer().run(
        operation, abandoned=lambda _: record.closing(RequestState.CANCELLED, "client_gone")
    )
    if isinstance(result, DomainError):
        raise result
    return result


def same_rights(cursor: CursorWrapper, admission: Admission) -> Rights:
    """The rights of an admitted call as they are now. A step of a later visit.

    Raises what refuses the call meanwhile, ToolUnavailable when the tool is no longer the same.
    """
    seen = admission.tool
    key = known_key(cursor, admission.key_text)
    rights = rights_of_key(cursor, key, tool_name=seen.exposed_name)
    tool = _granted_tool(cursor, rights, seen.exposed_name)
    if (tool.id, tool.digest, tool.is_action) != (seen.id, seen.digest, seen.is_action):
        raise ToolUnavailable
    if (tool.url, tool.credential) != (seen.url, seen.credential):
        raise ToolUnavailable
    return rights


async def require_same_rights(admission: Admission) -> None:
    """:func:`same_rights` in a visit of its own."""
    await get_writer().run(lambda cursor: same_rights(cursor, admission))


async def all_rights(key_text: str) -> Rights:
    """Everything the bearer may use now, for a list."""
    return await get_writer().run(
        lambda cursor: rights_of_key(cursor, known_key(cursor, key_text), everything=True)
    )


async def require_live(key_text: str) -> None:
    """Raise unless the key works at all."""
    await get_writer().run(lambda cursor: rights_of_key(cursor, known_key(cursor, key_text)))


def known_key(cursor: CursorWrapper, key_text: str) -> KeyRow:
    key = read_key(cursor, mac=credential_mac(key_text))
    if key is None:
        raise KeyDead
    return key


def _rights(cursor: CursorWrapper, key: KeyRow, name: str) -> Rights:
    """For a tool of ours everything, which its handler gets; else the one tool."""
    if name.startswith(FIRST_PARTY):
        return rights_of_key(cursor, key, everything=True)
    return rights_of_key(cursor, key, tool_name=name)


def _granted_tool(cursor: CursorWrapper, rights: Rights, name: str) -> ToolRow:
    tool = rights.tool(name)
    if tool is not None:
        return tool
    if is_withheld(cursor, rights.key, name):
        raise ToolUnavailable
    raise OutOfScope("The key's current rights do not include this tool.")
