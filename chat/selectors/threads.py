"""Threads of one principal. Somebody else's thread does not exist."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from uuid import UUID

from django.db.models import Q, QuerySet

from agents.errors import NotFound
from agents.models import Run
from agents.services.runs import Principal
from chat.models import Thread
from chat.selectors.tokens import Caller

#: A thread id or run id that a client chooses. It stands in rows, so it is no place for words.
CLIENT_ID = re.compile(r"[A-Za-z0-9_.:@/+=-]{1,128}")


def is_client_id(value: str) -> bool:
    """Whether a client may name a thread or run so: 1 to 128 characters, no spaces."""
    return CLIENT_ID.fullmatch(value) is not None


def thread_key(principal: Principal, client_id: str) -> UUID:
    """The thread that a client's id names: a UUID is itself, other text is the principal's own."""
    try:
        given = UUID(client_id)
    except ValueError:
        given = None
    if given is not None and str(given) == client_id:
        return given
    return uuid.uuid5(
        uuid.NAMESPACE_URL, "\x1f".join([principal.issuer, principal.subject, client_id])
    )


def threads_of(caller: Caller) -> QuerySet[Thread]:
    """The caller's own threads, in the token's organization, environment and agent."""
    mine = Thread.objects.filter(
        organization_id=caller.organization_id,
        environment_id=caller.environment_id,
        principal_kind=caller.principal.kind,
        principal_issuer=caller.principal.issuer,
        principal_subject=caller.principal.subject,
        deleted_at__isnull=True,
    )
    if caller.agent_id is not None:
        mine = mine.filter(agent_id=caller.agent_id)
    return mine.select_related("agent", "environment")


def own_thread(caller: Caller, client_id: str) -> Thread:
    """One thread by its id. Raises NotFound."""
    if not is_client_id(client_id):
        raise NotFound
    found = threads_of(caller).filter(id=thread_key(caller.principal, client_id)).first()
    if found is None:
        raise NotFound
    return found


def own_run(caller: Caller, client_thread_id: str, run_id: str) -> tuple[Thread, Run]:
    """A run of the thread's root session, by our id or the client's. Raises NotFound."""
    thread = own_thread(caller, client_thread_id)
    if not is_client_id(run_id):
        raise NotFound
    named = Q(client_run_id=run_id)
    with suppress(ValueError):
        named |= Q(id=UUID(run_id))
    run = Run.objects.filter(named, session_id=thread.id).first()
    if run is None:
        raise NotFound
    return thread, run


def last_run(session_id: UUID) -> Run | None:
    return Run.objects.filter(session_id=session_id).order_by("-created_at", "-id").first()
