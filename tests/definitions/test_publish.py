"""Publish, publish an old version again, Unpublish."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError, connection, transaction

from agents.errors import (
    DamagedContent,
    Forbidden,
    IdempotencyMismatch,
    Invalid,
    ModelDisabled,
    ModelNotGranted,
    NotFound,
    Suspended,
)
from agents.models import AgentEnvironment, AuditEvent, Blob, Grant
from agents.services.audit import broken_audit_link
from agents.services.grants import revoke_grant
from agents.services.identity import resume_agent, suspend_agent
from agents.services.resources import change_virtual_model
from definitions.errors import DraftChanged, NothingToPublish, NotPublishedHere
from definitions.models import Publication, Version
from definitions.selectors import draft_of, open_draft, open_version, published
from definitions.services.drafts import save_draft
from definitions.services.publishing import publish_draft, publish_version, unpublish
from tests.definitions.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def publish(desk: Desk, text: str = "Be brief.", **changes: object) -> Version:
    draft = desk.write(text)
    arguments = {
        "actor": desk.manager,
        "agent": desk.agent,
        "environment": desk.production,
        "draft_digest": draft.digest,
        "rationale": "because",
    }
    return publish_draft(**(arguments | changes)).version  # type: ignore[arg-type]


def test_it_works(desk: Desk) -> None:
    version = publish(desk)
    assert version.number == 1
    found = published(desk.agent.id, desk.production.id)
    assert found is not None
    assert found.version == version
    assert open_version(version).instructions == "Be brief."
    assert set(open_version(version).tool_ids) == {desk.read_tool.id, desk.action_tool.id}
    assert published(desk.agent.id, desk.staging.id) is None
    event = AuditEvent.objects.get(action="definition.publish")
    assert (event.rationale, event.after_digest) == ("because", version.digest)
    assert broken_audit_link(desk.organization.id) is None


def test_numbers_rise_and_versions_stay(desk: Desk) -> None:
    first, second = publish(desk, "One."), publish(desk, "Two.")
    assert (first.number, second.number) == (1, 2)
    assert open_version(first).instructions == "One."


def test_it_needs_the_exact_draft_digest(desk: Desk) -> None:
    seen = desk.write("What I reviewed.").digest
    desk.write("What somebody wrote meanwhile.")
    with pytest.raises(DraftChanged):
        publish(desk, "Third.", draft_digest=seen)
    assert not Version.objects.exists()


def test_the_same_request_twice_makes_one_number(desk: Desk) -> None:
    first = publish(desk)
    assert publish(desk) == first
    assert AuditEvent.objects.filter(action="definition.publish").count() == 1


def test_an_idempotency_key_answers_the_same_and_refuses_another_body(desk: Desk) -> None:
    first = publish(desk, idempotency_key="k1")
    publish(desk, "Newer.")
    digest = first.digest
    again = publish_draft(
        actor=desk.manager, agent=desk.agent, environment=desk.production,
        draft_digest=draft_of(desk.agent).digest, rationale="other", idempotency_key="k2",
    )  # fmt: skip
    assert again.version.number == 2
    with pytest.raises(IdempotencyMismatch):
        publish(desk, "Newest.", idempotency_key="k1")
    assert Version.objects.get(number=1).digest == digest


def test_the_same_text_to_a_second_environment_is_the_same_version(desk: Desk) -> None:
    first = publish(desk, environment=desk.staging)
    assert publish(desk, environment=desk.production) == first
    assert Publication.objects.count() == 2


def test_publishing_an_old_version_again_is_rollback_and_makes_no_number(desk: Desk) -> None:
    first = publish(desk, "One.")
    publish(desk, "Two.")
    done = publish_version(
        actor=desk.manager, version=first, environment=desk.production, rationale="worse"
    )
    assert not done.created
    found = published(desk.agent.id, desk.production.id)
    assert found is not None
    assert found.version_number == 1
    assert Version.objects.count() == 2


def test_unpublish_contains_and_reports(desk: Desk) -> None:
    publish(desk)
    before = AgentEnvironment.objects.get(agent=desk.agent, environment=desk.production)
    ended = unpublish(
        actor=desk.manager, agent=desk.agent, environment=desk.production, rationale="stop"
    )
    after = AgentEnvironment.objects.get(id=before.id)
    assert (after.state, after.published_version_id) == ("contained", None)
    assert after.generation > before.generation
    assert published(desk.agent.id, desk.production.id) is None
    assert re.match(r"contained in (\d+\.\d s|\d+ ms): 0 keys revoked, 0 runs stopped", str(ended))
    event = AuditEvent.objects.get(action="definition.unpublish")
    assert event.data["keys_revoked"] == 0
    assert Version.objects.count() == 1
    with pytest.raises(NotPublishedHere):
        unpublish(
            actor=desk.manager, agent=desk.agent, environment=desk.production, rationale="again"
        )


def test_an_operator_may_contain_but_not_publish(desk: Desk) -> None:
    publish(desk)
    unpublish(actor=desk.operator, agent=desk.agent, environment=desk.production, rationale="x")
    with pytest.raises(Forbidden):
        publish(desk, actor=desk.operator)


@pytest.mark.parametrize(
    ("who", "refusal"),
    [("member", Forbidden), ("other_manager", Forbidden), ("outsider", NotFound)],
)
def test_it_rejects_others(desk: Desk, who: str, refusal: type[Exception]) -> None:
    actor = getattr(desk, who)
    draft = desk.write("Text.")
    with pytest.raises(refusal):
        publish(desk, "Text.", actor=actor)
    with pytest.raises(refusal):
        save_draft(
            actor=actor, agent=desk.agent, digest_seen=draft.digest, instructions="Mine now.",
            virtual_model=desk.model, tools=[],
        )  # fmt: skip
    version = publish(desk, "Text.")
    with pytest.raises(refusal):
        publish_version(actor=actor, version=version, environment=desk.staging, rationale="x")
    with pytest.raises(refusal):
        unpublish(actor=actor, agent=desk.agent, environment=desk.production, rationale="x")
    assert draft_of(desk.agent).digest == draft.digest


@pytest.mark.parametrize("rationale", ["", "   ", "x" * 2_001, "a\x00b"])
def test_it_needs_a_rationale(desk: Desk, rationale: str) -> None:
    with pytest.raises(Invalid):
        publish(desk, rationale=rationale)
    assert not Version.objects.exists()


def test_an_empty_draft_is_not_published(desk: Desk) -> None:
    with pytest.raises(NothingToPublish):
        publish(desk, "  ")


def test_a_model_without_a_grant_or_disabled_is_not_published(desk: Desk) -> None:
    revoke_grant(
        actor=desk.manager,
        grant=Grant.objects.get(virtual_model=desk.model, environment=desk.production),
    )
    with pytest.raises(ModelNotGranted):
        publish(desk)
    assert publish(desk, environment=desk.staging).number == 1
    change_virtual_model(actor=desk.operator, model=desk.model, enabled=False)
    with pytest.raises(ModelDisabled):
        publish(desk, "Other.", environment=desk.staging)


def test_a_suspended_agent_is_not_published(desk: Desk) -> None:
    suspend_agent(actor=desk.manager, agent=desk.agent, rationale="odd answers")
    with pytest.raises(Suspended):
        publish(desk)
    resume_agent(actor=desk.manager, agent=desk.agent, rationale="fine again")
    assert publish(desk).number == 1


def test_a_damaged_text_is_not_published_and_harms_nothing_else(desk: Desk) -> None:
    first = publish(desk, "One.")
    publish(desk, "Two.")
    blob = Blob.objects.get(digest=first.digest)
    broken = bytearray(blob.sealed or b"")
    broken[-1] ^= 1
    Blob.objects.filter(id=blob.id).update(sealed=bytes(broken))
    with pytest.raises(DamagedContent):
        open_version(first)
    with pytest.raises(DamagedContent):
        publish_version(
            actor=desk.manager, version=first, environment=desk.production, rationale="x"
        )
    found = published(desk.agent.id, desk.production.id)
    assert found is not None
    assert open_version(found.version).instructions == "Two."


def test_control_columns_that_disagree_with_the_text_are_damage(desk: Desk) -> None:
    version = publish(desk)
    version.tool_ids = []
    with pytest.raises(DamagedContent):
        open_version(version)


def test_versions_refuse_update_and_delete_in_the_database(desk: Desk) -> None:
    version = publish(desk)
    for statement in (
        "UPDATE definitions_version SET number = 99",
        "DELETE FROM definitions_version",
        "UPDATE agents_auditevent SET rationale = 'nicer'",
        "DELETE FROM agents_auditevent",
    ):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    assert Version.objects.get().number == version.number


def test_it_survives_concurrent_publish(desk: Desk) -> None:
    """Eight publish the same draft at once: one number; all get it."""
    draft = desk.write("Race.")
    barrier = threading.Barrier(8)

    def race(_number: int) -> int:
        barrier.wait()
        try:
            done = publish_draft(
                actor=desk.manager,
                agent=desk.agent,
                environment=desk.production,
                draft_digest=draft.digest,
                rationale="race",
            )
        finally:
            connection.close()
        return done.version.number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(race, range(8))) == [1] * 8
    assert Version.objects.count() == 1
    assert broken_audit_link(desk.organization.id) is None


def test_two_managers_race_on_a_draft_and_one_is_told(desk: Desk) -> None:
    seen = desk.write("Base.").digest
    barrier = threading.Barrier(2)

    def race(text: str) -> str:
        barrier.wait()
        try:
            save_draft(
                actor=desk.manager,
                agent=desk.agent,
                digest_seen=seen,
                instructions=text,
                virtual_model=desk.model,
                tools=[],
            )
        except DraftChanged as refusal:
            return str(refusal.extra["current"])
        finally:
            connection.close()
        return text

    with ThreadPoolExecutor(2) as pool:
        outcomes = set(pool.map(race, ("Mine.", "Yours.")))
    winner = open_draft(draft_of(desk.agent)).instructions
    assert outcomes == {winner, draft_of(desk.agent).digest}


def test_publishing_another_version_ends_what_the_earlier_one_waits_to_do(desk: Desk) -> None:
    from tests.agents.test_containment import open_approval, start

    first = publish(desk, "One.")
    approval = open_approval(desk, start(desk).run)
    publish(desk, "One.")  # the same version again: nothing changes
    approval.refresh_from_db()
    assert approval.state == "open"
    publish(desk, "Two.")
    approval.refresh_from_db()
    assert (approval.state, approval.void_reason) == ("void", "superseded")
    publish_version(
        actor=desk.manager, version=first, environment=desk.production, rationale="back"
    )
    approval.refresh_from_db()
    assert approval.state == "void"
    event = AuditEvent.objects.filter(action="definition.publish").order_by("seq")[1]
    assert event.data["approvals_voided"] == 1
