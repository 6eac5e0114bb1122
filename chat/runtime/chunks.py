"""Chunks of a streamed answer, joined while they wait.

Every delta costs the agent library far more than the network. A reader takes chunks off the wire
as they come; whoever processes them gets all the text that has arrived meanwhile as one chunk. A
chunk that waits alone passes at once, so nothing is delayed and the text is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta

#: Chunks that may wait before the wire is no longer read.
WAITING = 1_024

Item = ChatCompletionChunk | Exception | None


async def joined(source: AsyncIterable[ChatCompletionChunk]) -> AsyncIterator[ChatCompletionChunk]:
    """The source's chunks, neighbouring pieces of text made one. Its error comes after them."""
    waiting: asyncio.Queue[Item] = asyncio.Queue(WAITING)
    reader = asyncio.create_task(_read(source, waiting))
    try:
        item = await waiting.get()
        while isinstance(item, ChatCompletionChunk):
            following: Item = None
            ended = False
            while not waiting.empty():
                following = waiting.get_nowait()
                ended = following is None
                if not (isinstance(following, ChatCompletionChunk) and _join(item, following)):
                    break
                following = None
            yield item
            item = following if following is not None or ended else await waiting.get()
        if item is not None:
            raise item
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def _read(source: AsyncIterable[ChatCompletionChunk], waiting: asyncio.Queue[Item]) -> None:
    try:
        async for chunk in source:
            await waiting.put(chunk)
    except Exception as error:  # noqa: BLE001 - handed over, to be raised where chunks are read
        await waiting.put(error)
    else:
        await waiting.put(None)


def _join(chunk: ChatCompletionChunk, following: ChatCompletionChunk) -> bool:
    """Append ``following`` to ``chunk`` when both are nothing but text."""
    first, second = _only_text(chunk), _only_text(following)
    if first is None or second is None:
        return False
    first.content = f"{first.content}{second.content}"
    return True


def _only_text(chunk: ChatCompletionChunk) -> ChoiceDelta | None:
    if len(chunk.choices or ()) != 1 or chunk.usage is not None:
        return None
    choice = chunk.choices[0]
    plain = choice.finish_reason is None and choice.logprobs is None and not choice.model_extra
    said = {name for name, value in choice.delta if value is not None} if plain else set()
    return choice.delta if said == {"content"} and isinstance(choice.delta.content, str) else None
