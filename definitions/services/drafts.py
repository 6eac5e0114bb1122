"""Write drafts: the text first into the content store, then the control row that names it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone

from agents import content_store
from agents.digests import keyed_digest
from agents.errors import Invalid
from agents.models import Agent, Team, Tool, VirtualModel
from agents.policy import Actor, require_manage
from agents.services.audit import append_audit
from agents.services.identity import create_agent_step
from agents.transactions import durable
from definitions.canonical import INSTRUCTIONS_LIMIT, KIND, TOOLS_LIMIT, Definition
from definitions.errors import DraftChanged, InstructionsTooLarge
from definitions.models import Draft

EMPTY = Definition("", None, ())


def clean_instructions(text: str) -> str:
    """Instructions as they are stored: line breaks unified, at most 64 KiB of UTF-8.

    Raises Invalid for NUL and lone surrogates, which one of the databases could not hold.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x00" in text:
        raise Invalid("Instructions may not hold NUL characters.", field="instructions")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid("Instructions must be valid Unicode.", field="instructions") from None
    if size > INSTRUCTIONS_LIMIT:
        raise InstructionsTooLarge(field="instructions", size=size, limit=INSTRUCTIONS_LIMIT)
    return text


def store_definition(organization_id: UUID, definition: Definition) -> str:
    """Seal a definition into the content store and return its keyed digest."""
    return content_store.put(organization_id, KIND, definition.to_bytes())


def create_agent(*, actor: Actor, team: Team, name: str, slug: str) -> Agent:
    """Make an agent with an empty draft: identity and draft commit together."""
    content_store.put(team.organization_id, KIND, EMPTY.to_bytes())
    return _create_agent(actor=actor, team=team, name=name, slug=slug)


@durable()
def _create_agent(*, actor: Actor, team: Team, name: str, slug: str) -> Agent:
    agent = create_agent_step(actor, team, name, slug)
    Draft.objects.create(
        agent=agent, digest=keyed_digest(EMPTY.to_bytes()), updated_by_id=actor.user_id
    )
    return agent


def save_draft(
    *,
    actor: Actor,
    agent: Agent,
    digest_seen: str,
    instructions: str,
    virtual_model: VirtualModel | None,
    tools: Sequence[Tool],
) -> Draft:
    """Replace the draft, if it still is the one the caller saw.

    Raises DraftChanged (with the current digest) when somebody saved meanwhile; nothing is
    written then. Saving what is there already changes nothing and raises nothing.
    """
    require_manage(actor, agent)
    _check_resources(agent, virtual_model, tools)
    definition = Definition.of(
        clean_instructions(instructions),
        None if virtual_model is None else virtual_model.id,
        (t.id for t in tools),
    )
    digest = store_definition(agent.organization_id, definition)
    return _save_draft(actor, agent, digest_seen, digest, definition)


@durable()
def _save_draft(
    actor: Actor, agent: Agent, digest_seen: str, digest: str, definition: Definition
) -> Draft:
    model = definition.virtual_model_id
    won = Draft.objects.filter(agent=agent, digest=digest_seen).update(
        digest=digest,
        virtual_model_id=model,
        tool_ids=[str(t) for t in definition.tool_ids],
        updated_at=timezone.now(),
        updated_by_id=actor.user_id,
    )
    draft = Draft.objects.select_related("updated_by").get(agent=agent)
    if not won and draft.digest != digest:
        raise DraftChanged(current=draft.digest, sent=digest)
    if won and digest != digest_seen:
        append_audit(
            actor=actor,
            organization_id=agent.organization_id,
            action="definition.save",
            target_kind="draft",
            target_id=draft.id,
            agent_id=agent.id,
            before_digest=digest_seen,
            after_digest=digest,
        )
    return draft


def _check_resources(
    agent: Agent, virtual_model: VirtualModel | None, tools: Sequence[Tool]
) -> None:
    foreign = [t for t in tools if t.connector.organization_id != agent.organization_id]
    if foreign or (
        virtual_model is not None and virtual_model.organization_id != agent.organization_id
    ):
        raise Invalid("Model and tools must be of the agent's organization.")
    if len(tools) > TOOLS_LIMIT:
        raise Invalid(f"A definition has at most {TOOLS_LIMIT} tools.", field="tools")
