"""Open streams and the tokens that they were opened with: a stream does not outlive its token.

All tokens of a process are looked at together, about once a second, however many streams there
are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from chat.selectors.tokens import living_tokens
from chat.services.stores import read

logger = logging.getLogger(__name__)

#: How often the rows behind the tokens are looked at.
CHECK_SECONDS = 1.0


class Bearers:
    """The tokens of this process's streams; use :data:`bearers`."""

    def __init__(self) -> None:
        self._died: dict[str, set[asyncio.Event]] = {}
        self._watch: asyncio.Task[None] | None = None

    @contextmanager
    def until_death(self, token: str) -> Iterator[asyncio.Event]:
        """An event that is set once *token* does not hold any more."""
        died = asyncio.Event()
        self._died.setdefault(token, set()).add(died)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._check_for_ever(), name="chat-tokens")
        try:
            yield died
        finally:
            others = self._died[token]
            others.discard(died)
            if not others:
                del self._died[token]

    async def _check_for_ever(self) -> None:
        """Until no stream is open."""
        while self._died:
            await asyncio.sleep(CHECK_SECONDS)
            tokens = list(self._died)
            try:
                living = await read(living_tokens, tokens)
            except Exception as error:  # noqa: BLE001 - the next look may succeed
                logger.warning("tokens were not checked: %s", type(error).__name__)
                continue
            for token in tokens:
                if token not in living:
                    for died in self._died.get(token, ()):
                        died.set()


bearers = Bearers()
