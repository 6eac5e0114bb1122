"""Read the rows behind one agent key in one hop: what effective_rights decides over.

Hand-written SQL, because it runs at every gateway call. The row of the agent in its environment
is the one mutex between a call and whatever takes rights away: a call holds it FOR SHARE before
it reads anything, and containment, revocation and suspension change it first. So every statement
that follows sees all that was committed before, and no call succeeds after such a commit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from agents import clock, sql
from agents.choices import ToolState
from agents.digests import credential_mac
from agents.errors import KeyDead
from agents.policy import KeyRow, KeyRows, ModelRow, Rights, ToolRow, effective_rights

KEY_COLUMNS = """
k.id, k.accessor, k.kind, k.scope, k.generation, k.expires_at, k.revoked_at,
o.id, o.status, a.id, a.slug, a.status, e.id, e.slug, s.state, s.generation,
r.id, r.state, r.thread_id, r.depth
"""

KEY_TABLES = """
FROM agents_agentkey k
JOIN agents_agent a ON a.id = k.agent_id
JOIN agents_organization o ON o.id = k.organization_id
JOIN agents_environment e ON e.id = k.environment_id
JOIN agents_agentenvironment s ON s.agent_id = k.agent_id AND s.environment_id = k.environment_id
LEFT JOIN agents_run r ON r.id = k.run_id
"""

KEY_SQL = f"SELECT {KEY_COLUMNS} {KEY_TABLES} WHERE {{condition}}"

HOLD_SQL = """
SELECT 1 FROM agents_agentenvironment s
JOIN agents_agentkey k ON k.agent_id = s.agent_id AND k.environment_id = s.environment_id
"""

MODEL_COLUMNS = """
m.id, m.slug, m.upstream_model, m.pricing_reference, m.context_limit, m.output_limit,
m.enabled, p.id, p.enabled, p.base_url, p.output_limit_parameter, p.credential,
c.upstream_model, c.input_rate, c.output_rate, c.cache_read_rate, c.cache_write_rate
"""

MODEL_TABLES = """
JOIN agents_virtualmodel m ON m.id = g.virtual_model_id
JOIN agents_modelprovider p ON p.id = m.provider_id
LEFT JOIN agents_ratecard c ON c.virtual_model_id = m.id AND c.version =
    (SELECT MAX(newest.version) FROM agents_ratecard newest WHERE newest.virtual_model_id = m.id)
"""

MODEL_SQL = f"""
SELECT {MODEL_COLUMNS} FROM agents_grant g {MODEL_TABLES}
WHERE g.agent_id = %s AND g.environment_id = %s AND g.revoked_at IS NULL
"""  # noqa: S608 - made of constants

#: A key and one model it is granted, in one statement: the start of most calls.
KEY_AND_MODEL_SQL = f"""
SELECT {KEY_COLUMNS}, {MODEL_COLUMNS} {KEY_TABLES}
JOIN agents_grant g ON g.agent_id = k.agent_id AND g.environment_id = k.environment_id
    AND g.revoked_at IS NULL
{MODEL_TABLES}
WHERE k.mac = %s AND m.slug = %s
"""
#: Where the model's columns begin in the rows of that statement.
FIRST_MODEL_COLUMN = 20

TOOL_SQL = """
SELECT t.id, t.name, t.exposed_name, t.title, t.description, t.input_schema, t.annotations,
       t.digest, t.classification, t.state, c.id, c.slug, c.enabled, c.first_party, c.url,
       c.credential
FROM agents_grant g
JOIN agents_tool t ON t.id = g.tool_id
JOIN agents_connector c ON c.id = t.connector_id
WHERE g.agent_id = %s AND g.environment_id = %s AND g.revoked_at IS NULL
"""

AGENT_SQL = """
SELECT g.target_agent_id FROM agents_grant g
WHERE g.agent_id = %s AND g.environment_id = %s AND g.revoked_at IS NULL
  AND g.target_agent_id IS NOT NULL
"""


def rights_of_text(
    cursor: CursorWrapper,
    key_text: str,
    *,
    model_slug: str | None = None,
    tool_name: str | None = None,
    everything: bool = False,
) -> Rights:
    """What the bearer of *key_text* may use now, resolved inside the caller's transaction.

    Reads only the named model or tool, or everything. Raises KeyDead for an unknown key and
    whatever :func:`effective_rights` raises.
    """
    key = read_key(cursor, mac=credential_mac(key_text))
    if key is None:
        raise KeyDead
    return rights_of_key(
        cursor, key, model_slug=model_slug, tool_name=tool_name, everything=everything
    )


def rights_of_key(
    cursor: CursorWrapper,
    key: KeyRow,
    *,
    model_slug: str | None = None,
    tool_name: str | None = None,
    everything: bool = False,
) -> Rights:
    """As :func:`rights_of_text`, for a key row that was just read in this transaction."""
    rows = KeyRows(
        key=key,
        models=_models(cursor, key, None if everything else model_slug)
        if everything or model_slug is not None
        else (),
        tools=_tools(cursor, key, None if everything else tool_name)
        if everything or tool_name is not None
        else (),
        agent_ids=_agents(cursor, key) if everything else (),
    )
    return effective_rights(rows, clock.now(cursor))


def is_withheld(cursor: CursorWrapper, key: KeyRow, tool_name: str) -> bool:
    """Whether a tool is granted and in the key's scope, and only its own state keeps it back."""
    usable = tuple(
        replace(tool, state=ToolState.ACCEPTED, connector_enabled=True)
        for tool in _tools(cursor, key, tool_name)
    )
    return bool(effective_rights(KeyRows(key=key, tools=usable), clock.now(cursor)).tools)


def read_key(
    cursor: CursorWrapper,
    *,
    mac: str | None = None,
    key_id: UUID | None = None,
    hold: bool = True,
) -> KeyRow | None:
    """The row of one key, by the HMAC of its text or by its id.

    ``hold=False`` takes no lock: for looking again at calls that were admitted before.
    """
    condition, value = ("k.mac = %s", mac) if mac is not None else ("k.id = %s", key_id)
    if hold:
        _hold(cursor, condition, value)
    row = sql.one(cursor, KEY_SQL.format(condition=condition), [value])
    return None if row is None else _key_row(row)


def read_key_and_model(
    cursor: CursorWrapper, *, mac: str, model_slug: str
) -> tuple[KeyRow, ModelRow] | None:
    """A key and a model that is granted to its agent; None when either is not there.

    It decides nothing: hand both to :func:`agents.policy.effective_rights`.
    """
    _hold(cursor, "k.mac = %s", mac)
    row = sql.one(cursor, KEY_AND_MODEL_SQL, [mac, model_slug])
    return None if row is None else (_key_row(row), model_row(row[FIRST_MODEL_COLUMN:]))


def _key_row(row: tuple[Any, ...]) -> KeyRow:
    return KeyRow(
        id=sql.read_uuid(row[0]),
        accessor=row[1],
        kind=row[2],
        scope=_scope(sql.read_json(row[3])),
        generation=row[4],
        expires_at=None if row[5] is None else sql.read_dt(row[5]),
        revoked_at=None if row[6] is None else sql.read_dt(row[6]),
        organization_id=sql.read_uuid(row[7]),
        organization_status=row[8],
        agent_id=sql.read_uuid(row[9]),
        agent_slug=row[10],
        agent_status=row[11],
        environment_id=sql.read_uuid(row[12]),
        environment_slug=row[13],
        environment_state=row[14],
        environment_generation=row[15],
        run_id=None if row[16] is None else sql.read_uuid(row[16]),
        run_state=row[17],
        thread_id=None if row[18] is None else sql.read_uuid(row[18]),
        run_depth=row[19] or 0,
    )


def _scope(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _hold(cursor: CursorWrapper, condition: str, value: str | UUID | None) -> None:
    """Keep the key's agent in its environment as it is until this transaction ends.

    SQLite's writer is alone from BEGIN on and needs nothing.
    """
    clause = sql.for_share(cursor.db)
    if clause:
        sql.execute(cursor, f"{HOLD_SQL} WHERE {condition} {clause} OF s", [value])


def _slot(key: KeyRow) -> list[Any]:
    return [key.agent_id, key.environment_id]


def _models(cursor: CursorWrapper, key: KeyRow, slug: str | None) -> tuple[ModelRow, ...]:
    statement, parameters = MODEL_SQL, _slot(key)
    if slug is not None:
        statement, parameters = statement + " AND m.slug = %s", [*parameters, slug]
    rows = sql.every(cursor, statement, parameters)
    return tuple(model_row(row) for row in rows)


def model_row(row: tuple[Any, ...]) -> ModelRow:
    """A row of MODEL_COLUMNS."""
    return ModelRow(
        id=sql.read_uuid(row[0]),
        slug=row[1],
        upstream_model=row[2],
        pricing_reference=row[3],
        context_limit=row[4],
        output_limit=row[5],
        enabled=sql.read_bool(row[6]),
        provider_id=sql.read_uuid(row[7]),
        provider_enabled=sql.read_bool(row[8]),
        base_url=row[9],
        output_limit_parameter=row[10],
        credential=sql.read_bytes(row[11]),
        rate_card=None if row[12] is None else (row[12], row[13], row[14], row[15], row[16]),
    )


def _tools(cursor: CursorWrapper, key: KeyRow, name: str | None) -> tuple[ToolRow, ...]:
    statement, parameters = TOOL_SQL, _slot(key)
    if name is not None:
        statement, parameters = statement + " AND t.exposed_name = %s", [*parameters, name]
    rows = sql.every(cursor, statement, parameters)
    tools = (
        ToolRow(
            id=sql.read_uuid(row[0]),
            name=row[1],
            exposed_name=row[2],
            title=row[3],
            description=row[4],
            input_schema=sql.read_json(row[5]),
            annotations=sql.read_json(row[6]),
            digest=row[7],
            classification=row[8],
            state=row[9],
            connector_id=sql.read_uuid(row[10]),
            connector_slug=row[11],
            connector_enabled=sql.read_bool(row[12]),
            first_party=sql.read_bool(row[13]),
            url=row[14],
            credential=sql.read_bytes(row[15]),
        )
        for row in rows
    )
    return tuple(sorted(tools, key=lambda t: t.exposed_name))


def _agents(cursor: CursorWrapper, key: KeyRow) -> tuple[UUID, ...]:
    rows = sql.every(cursor, AGENT_SQL, _slot(key))
    return tuple(sorted(sql.read_uuid(r[0]) for r in rows))
