"""The start of a run, as its log tells it."""

from __future__ import annotations

import time

from chat.selectors.log import USER_MESSAGE
from chat.services import log
from chat.services.jobs import Job
from chat.services.stores import content
from chat.services.terminal import place_of, settle_session
from chat.services.titles import store_first_texts


async def tell_start(job: Job) -> int:
    """Store a new thread's title, then begin the run's log; its first entry's number."""
    if job.title:
        run = job.run
        await content(
            lambda: store_first_texts(
                run.organization_id, run.thread_id, job.title, job.display_name
            )
        )
    return await begin_log(job)


async def begin_log(job: Job) -> int:
    """Write the user's message and RUN_STARTED: from here on the run has a log.

    Returns the number of the run's first entry.
    """
    run = job.run
    items: list[log.Item] = []
    if job.message is not None and not job.message.again:
        said = {"id": job.message.id, "role": "user", "content": job.message.text}
        items.append((USER_MESSAGE, log.encode(said)))
    started = {
        "type": "RUN_STARTED",
        "threadId": job.client_thread_id,
        "runId": run.client_run_id,
        "protocolVersion": "1.0",
        "timestamp": time.time_ns() // 1_000_000,
    }
    items.append(("RUN_STARTED", log.encode(started)))
    try:
        entries = await log.append(place_of(run), items, "begin")
    except log.LogClosed:
        # The run before ended after we looked: its end comes first.
        await settle_session(run.session_id)
        entries = await log.append(place_of(run), items, "begin")
    return entries[0].seq
