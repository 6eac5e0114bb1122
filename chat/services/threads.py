"""Rename and erase threads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone

from agents import clock
from agents.choices import ParkedState, RunState
from agents.errors import NotFound, RunActive
from agents.models import Blob, ParkedCall, Run
from agents.policy import Actor
from agents.services.audit import append_audit
from agents.services.containment import void_approvals
from agents.transactions import durable
from chat.models import SessionEvent, Thread, ThreadText
from chat.selectors.erased import content_of_erased
from chat.selectors.threads import own_thread
from chat.selectors.tokens import Caller
from chat.services.titles import clean_title, store_title

#: How long the sweep repeats an erasure, in case a crash came between its two stores.
REPEATED_FOR = dt.timedelta(days=1)
BATCH = 500


def rename_thread(*, caller: Caller, client_id: str, title: str) -> Thread:
    """Give the caller's thread another title. Raises NotFound or Invalid."""
    thread = own_thread(caller, client_id)
    _store_title(thread, clean_title(title))
    return thread


@durable(using="content")
def _store_title(thread: Thread, title: str) -> None:
    store_title(thread.organization_id, thread.id, title)


def erase_thread(*, caller: Caller, client_id: str) -> None:
    """Erase a thread's texts; rows and digests stay. Audited.

    Raises NotFound, or RunActive while a run of the thread, or below it, is running.
    """
    thread_id = _mark_erased(caller, client_id)
    erase_content([thread_id])


@durable(full=True)
def _mark_erased(caller: Caller, client_id: str) -> UUID:
    thread_id = own_thread(caller, client_id).id
    thread = Thread.objects.select_for_update().get(id=thread_id)
    if thread.deleted_at is not None:
        raise NotFound
    runs = Run.objects.filter(thread_id=thread_id)
    if runs.filter(state=RunState.RUNNING).exists():
        raise RunActive
    thread.deleted_at = clock.database_now()
    thread.save(update_fields=["deleted_at"])
    runs.filter(terminal_logged=False).update(terminal_logged=True)
    void_approvals("erased", thread_id=thread_id)
    ParkedCall.objects.filter(run__thread_id=thread_id, state=ParkedState.WAITING).update(
        state=ParkedState.VOID
    )
    append_audit(
        actor=Actor(kind="principal", id=str(caller.principal)),
        organization_id=thread.organization_id,
        action="thread.erase",
        target_kind="thread",
        target_id=thread_id,
        agent_id=thread.agent_id,
        environment_id=thread.environment_id,
    )
    return thread_id


def erase_content(thread_ids: Sequence[UUID]) -> None:
    """Delete the sealed texts of threads that are marked as erased. Safe to repeat.

    A blob that anybody put since the names were read may belong to a living thread: it stays.
    """
    before = timezone.now()
    named = content_of_erased(thread_ids)
    _delete(thread_ids, named, before)


@durable(using="content")
def _delete(
    thread_ids: Sequence[UUID], named: dict[str, set[tuple[UUID, str]]], before: dt.datetime
) -> None:
    SessionEvent.objects.filter(thread_id__in=thread_ids).delete()
    ThreadText.objects.filter(id__in=thread_ids).delete()
    for kind, addresses in named.items():
        for organization_id, digest in addresses:
            Blob.objects.filter(
                organization_id=organization_id, kind=kind, digest=digest, touched_at__lt=before
            ).delete()


def sweep_erased() -> bool:
    """Repeat the recent erasures if content of theirs is still there, or came afterwards."""
    since = clock.database_now() - REPEATED_FOR
    recent = list(Thread.objects.filter(deleted_at__gt=since).values_list("id", flat=True)[:BATCH])
    left = (
        SessionEvent.objects.filter(thread_id__in=recent).exists()
        or ThreadText.objects.filter(id__in=recent).exists()
        or _are_blobs_left(recent)
    )
    if left:
        erase_content(recent)
    return left


def _are_blobs_left(thread_ids: Sequence[UUID]) -> bool:
    for kind, addresses in content_of_erased(thread_ids).items():
        blobs = Blob.objects.filter(kind=kind, digest__in=[digest for _, digest in addresses])
        if not addresses.isdisjoint(blobs.values_list("organization_id", "digest")):
            return True
    return False
