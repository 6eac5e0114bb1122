"""Containment against calls and runs in flight, with real connections and threads.

On PostgreSQL these are real lock waits; on SQLite the writers queue. Both must end the same way.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from agents.choices import RunState
from agents.errors import DomainError, Suspended
from agents.models import AgentEnvironment, Membership, User
from agents.policy import Rights
from agents.selectors.identity import actor_of
from agents.selectors.rights import rights_of_text
from agents.services.boots import start_boot
from agents.services.identity import change_member, suspend_agent
from agents.services.resources import change_provider
from agents.services.runs import end_run
from agents.transactions import durable
from definitions.services.publishing import unpublish
from tests.agents.test_containment import external_key, publish, start
from tests.definitions.conftest import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Close the thread's own connection afterwards."""

    def wrapped() -> Any:
        try:
            return work()
        finally:
            connection.close()

    return wrapped


def hop(text: str) -> Rights:
    """One gateway call's reading, in a transaction of its own."""
    with transaction.atomic(), connection.cursor() as cursor:
        return rights_of_text(cursor, text, everything=True)


def test_a_call_that_waited_for_a_suspension_sees_it(desk: Desk) -> None:
    """The call began before the commit and was held up by it: it is refused all the same."""
    publish(desk)
    key = external_key(desk)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            list(AgentEnvironment.objects.select_for_update().filter(agent=desk.agent))
            waiting = pool.submit(in_thread(lambda: hop(key)))
            time.sleep(0.3)
            desk.agent.status = "suspended"
            desk.agent.save(update_fields=["status"])
        with pytest.raises(Suspended):
            waiting.result(30)


def test_containment_wins_whatever_ends_at_the_same_moment(desk: Desk) -> None:
    """Runs end, calls are admitted and the agent is unpublished, all at once, many times."""
    for _ in range(8):
        one_round(desk)


def one_round(desk: Desk) -> None:
    publish(desk)
    boot = start_boot(role="web")
    runs = [start(desk, boot) for _ in range(4)]
    barrier = threading.Barrier(9)
    ends = durable(full=True)(end_run)

    def end(run_id: uuid.UUID) -> None:
        barrier.wait()
        ends(run_id=run_id, boot_id=boot.id, state=RunState.SUCCEEDED)

    def call(text: str) -> None:
        barrier.wait()
        try:
            hop(text)
        except (DomainError, OperationalError):
            return  # refused, or this hop lost a race and would be tried again

    def contain() -> None:
        barrier.wait()
        unpublish(actor=desk.manager, agent=desk.agent, environment=desk.production, rationale="x")

    with ThreadPoolExecutor(9) as pool:
        jobs = [pool.submit(in_thread(partial(end, r.run.id))) for r in runs]
        jobs += [pool.submit(in_thread(partial(call, r.key_text))) for r in runs]
        jobs.append(pool.submit(in_thread(contain)))
        for job in jobs:
            job.result(60)
    for started in runs:
        with pytest.raises(DomainError):
            hop(started.key_text)


def test_a_service_that_lost_a_race_is_tried_again() -> None:
    tries = 0

    class Deadlock(Exception):
        sqlstate = "40P01"

    @durable()
    def service() -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OperationalError from Deadlock()
        return tries

    assert service() == 3

    @durable()
    def broken() -> None:
        raise OperationalError("the disk is full")

    with pytest.raises(OperationalError):
        broken()


def test_a_change_of_one_field_never_brings_back_another(desk: Desk) -> None:
    """Two operators look at the same row; each changes another thing; both changes stay."""
    membership = Membership.objects.get(user__username="bob")
    stale = Membership.objects.get(id=membership.id)
    change_member(actor=desk.operator, membership=membership, active=False)
    change_member(actor=desk.operator, membership=stale, role="agent_manager")
    membership.refresh_from_db()
    assert (membership.active, membership.role) == (False, "agent_manager")
    provider = desk.model.provider
    old = type(provider).objects.get(id=provider.id)
    change_provider(actor=desk.operator, provider=provider, enabled=False)
    change_provider(actor=desk.operator, provider=old, name="Other")
    provider.refresh_from_db()
    assert (provider.enabled, provider.name) == (False, "Other")


def test_an_operator_has_no_product_role(desk: Desk) -> None:
    user = User.objects.get(username="alice")
    user.is_staff = True
    user.save(update_fields=["is_staff"])
    actor = actor_of(user)
    assert (actor.is_operator, actor.role, actor.organization_id) == (True, "", None)
    with pytest.raises(DomainError):
        suspend_agent(
            actor=actor_of(User.objects.get(username="bob")), agent=desk.agent, rationale="x"
        )
