"""Publish, publish again (rollback), and Unpublish (containment)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Max
from django.utils import timezone

from agents import content_store
from agents.choices import EnvironmentState, Status
from agents.errors import ModelDisabled, ModelNotGranted, NotFound, Suspended
from agents.models import Agent, AgentEnvironment, Environment, Grant, VirtualModel
from agents.policy import Actor, require_contain, require_manage
from agents.services.audit import append_audit
from agents.services.containment import Containment, contain, void_superseded
from agents.services.idempotency import recall, remember
from agents.services.identity import clean_rationale
from agents.transactions import durable
from definitions.canonical import KIND
from definitions.errors import DraftChanged, NothingToPublish, NotPublishedHere
from definitions.models import Draft, Publication, Version
from definitions.selectors import open_draft, open_version


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publish: ``created`` tells whether a new number was made."""

    version: Version
    environment: Environment
    created: bool
    changed: bool


def publish_draft(
    *,
    actor: Actor,
    agent: Agent,
    environment: Environment,
    draft_digest: str,
    rationale: str,
    idempotency_key: str = "",
) -> Published:
    """Publish exactly the draft with *draft_digest* to an environment.

    Makes the next version, unless the newest version already has this digest: the same text to a
    second environment, or the same request twice, makes no second number. Raises DraftChanged,
    NothingToPublish, ModelNotGranted, ModelDisabled, Suspended, DamagedContent, and
    IdempotencyMismatch.
    """
    require_manage(actor, agent)
    _check_environment(agent, environment)
    draft = Draft.objects.select_related("agent").get(agent=agent)
    if draft.digest != draft_digest:
        raise DraftChanged(current=draft.digest)
    definition = open_draft(draft)
    if definition.virtual_model_id is None or not definition.instructions.strip():
        raise NothingToPublish
    content_store.touch(agent.organization_id, KIND, draft.digest)
    return _publish_draft(
        actor, agent, environment, draft_digest, clean_rationale(rationale), idempotency_key
    )


@durable()
def _publish_draft(
    actor: Actor,
    agent: Agent,
    environment: Environment,
    draft_digest: str,
    rationale: str,
    idempotency_key: str,
) -> Published:
    slot = _lock_slot(agent, environment)
    identity: dict[str, Any] = {
        "organization_id": agent.organization_id,
        "actor_id": actor.id,
        "operation": "definition.publish",
        "key": idempotency_key,
        "body_digest": _body_digest(agent.id, environment.id, draft_digest, rationale),
    }
    if idempotency_key and (seen := recall(**identity)) is not None:
        version = Version.objects.get(id=seen["version"])
        return Published(version, environment, created=False, changed=False)
    draft = Draft.objects.select_for_update().get(agent=agent)
    if draft.digest != draft_digest or draft.virtual_model_id is None:
        raise DraftChanged(current=draft.digest)
    newest = Version.objects.filter(agent=agent).order_by("-number").first()
    created = newest is None or newest.digest != draft_digest
    if created:
        version = Version.objects.create(
            agent=agent,
            number=_next_number(agent),
            digest=draft.digest,
            virtual_model_id=draft.virtual_model_id,
            tool_ids=draft.tool_ids,
            rationale=rationale,
            created_by_id=actor.user_id,
        )
    else:
        assert newest is not None
        version = newest
    changed = _point(actor, slot, environment, version, rationale)
    if idempotency_key:
        remember(**identity, result={"version": str(version.id)})
    return Published(version, environment, created, changed)


def publish_version(
    *, actor: Actor, version: Version, environment: Environment, rationale: str
) -> Published:
    """Point an environment at an existing version again: rollback. It makes no number."""
    agent = version.agent
    require_manage(actor, agent)
    _check_environment(agent, environment)
    open_version(version)  # raises DamagedContent: what cannot be read is not published
    content_store.touch(agent.organization_id, KIND, version.digest)
    return _publish_version(actor, agent, version, environment, clean_rationale(rationale))


@durable()
def _publish_version(
    actor: Actor, agent: Agent, version: Version, environment: Environment, rationale: str
) -> Published:
    slot = _lock_slot(agent, environment)
    changed = _point(actor, slot, environment, version, rationale)
    return Published(version, environment, created=False, changed=changed)


@durable(full=True)
def unpublish(
    *, actor: Actor, agent: Agent, environment: Environment, rationale: str
) -> Containment:
    """Contain an agent in an environment; says what it ended and how long that took.

    From the commit on no managed key works, external keys are refused ``not_published``, open
    approvals are void. Transcripts, versions and records stay. Raises NotPublishedHere.
    """
    require_contain(actor, agent)
    _check_environment(agent, environment)
    rationale = clean_rationale(rationale)
    slot = _lock_slot(agent, environment)
    if slot.state == EnvironmentState.CONTAINED and slot.published_version_id is None:
        raise NotPublishedHere
    before = slot.published_digest
    Publication.objects.filter(agent=agent, environment=environment).delete()
    ended = contain(
        agent_ids=[agent.id], environment_id=environment.id, reason="unpublished", close=True
    )
    append_audit(
        actor=actor,
        organization_id=agent.organization_id,
        action="definition.unpublish",
        target_kind="agent",
        target_id=agent.id,
        agent_id=agent.id,
        environment_id=environment.id,
        rationale=rationale,
        before_digest=before,
        **ended.as_data(),
    )
    return ended


def _lock_slot(agent: Agent, environment: Environment) -> AgentEnvironment:
    return AgentEnvironment.objects.select_for_update().get(agent=agent, environment=environment)


def _check_environment(agent: Agent, environment: Environment) -> None:
    if environment.organization_id != agent.organization_id:
        raise NotFound("There is no such environment.")


def _next_number(agent: Agent) -> int:
    last: int | None = Version.objects.filter(agent=agent).aggregate(last=Max("number"))["last"]
    return (last or 0) + 1


def _body_digest(*parts: object) -> str:
    return hashlib.sha256("\n".join(str(p) for p in parts).encode()).hexdigest()


def _point(
    actor: Actor,
    slot: AgentEnvironment,
    environment: Environment,
    version: Version,
    rationale: str,
) -> bool:
    """Let the environment run *version* from the next turn on; False when it does already.

    Keys of runs under way keep their generation: they finish under the version they are pinned
    to. What another version waits to do is void: a person's word counts for the text it was
    given to. Raises Suspended, ModelNotGranted or ModelDisabled.
    """
    agent = version.agent
    agent.refresh_from_db(fields=["status"])
    if agent.status == Status.SUSPENDED:
        raise Suspended("Resume the agent before publishing.")
    _check_model(agent, environment, version)
    if slot.published_version_id == version.id and slot.state == EnvironmentState.OPEN:
        return False
    before = slot.published_digest
    AgentEnvironment.objects.filter(id=slot.id).update(
        state=EnvironmentState.OPEN,
        generation=F("generation") + (0 if slot.state == EnvironmentState.OPEN else 1),
        published_version_id=version.id,
        published_number=version.number,
        published_digest=version.digest,
    )
    Publication.objects.update_or_create(
        agent=agent,
        environment=environment,
        defaults={
            "version": version,
            "published_at": timezone.now(),
            "published_by_id": actor.user_id,
            "rationale": rationale,
        },
    )
    superseded = void_superseded(
        agent_id=agent.id, environment_id=environment.id, digest=version.digest
    )
    append_audit(
        actor=actor,
        organization_id=agent.organization_id,
        action="definition.publish",
        target_kind="version",
        target_id=version.id,
        agent_id=agent.id,
        environment_id=environment.id,
        rationale=rationale,
        before_digest=before,
        after_digest=version.digest,
        number=version.number,
        approvals_voided=superseded,
    )
    return True


def _check_model(agent: Agent, environment: Environment, version: Version) -> None:
    model = (
        VirtualModel.objects.select_related("provider")
        .filter(id=version.virtual_model_id, organization_id=agent.organization_id)
        .first()
    )
    if model is None or not model.enabled or not model.provider.enabled:
        raise ModelDisabled
    granted = Grant.objects.filter(
        agent=agent, environment=environment, virtual_model=model, revoked_at__isnull=True
    )
    if not granted.exists():
        raise ModelNotGranted(
            f"Grant the model {model.slug} in {environment.slug} before publishing there."
        )
