"""Text that waits is joined; it is the same text, and nothing waits for more."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.runtime.joining import JoiningStream, join
from chat.runtime.outbox import HIGH_WATER, Frame, Outbox, joined
from chat.runtime.wire import EventFrame, FinalFrame, MessageFrame, decode


def chunk(delta: dict[str, Any], **changes: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None, **changes}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


def said(events: bytes) -> str:
    """The text of a stream, as a client reads it."""
    text = ""
    for event in events.split(b"\n\n"):
        if event.startswith(b"data: {"):
            for choice in json.loads(event[6:])["choices"]:
                text += choice["delta"].get("content") or ""
    return text


EVENTS = st.one_of(
    st.text(max_size=6).map(lambda t: chunk({"content": t})),
    st.text(max_size=6).map(lambda t: chunk({"role": "assistant", "content": t})),
    st.just(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]})),
    st.just(chunk({"content": "!"}, finish_reason="stop")),
    st.just(chunk({"content": "!"}, logprobs={"content": []})),
    st.just(b'data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\n'),
    st.just(b": keep-alive\n\n"),
    st.just(b"data: [DONE]\n\n"),
)


@given(events=st.lists(EVENTS, max_size=12), cut=st.integers(0, 400))
def test_joining_keeps_text_order_and_every_other_event(events: list[bytes], cut: int) -> None:
    whole = b"".join(events)
    first, rest = join(whole[:cut])
    second, left = join(rest + whole[cut:])

    assert left == b""
    assert said(first + second) == said(whole)
    plain = [
        e
        for e in events
        if not e.startswith(b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content"')
    ]
    position = 0
    for event in plain:
        position = (first + second).index(event, position) + len(event)


def test_neighbouring_text_becomes_one_event() -> None:
    data = chunk({"content": "Hel"}) + chunk({"content": "lo"}) + chunk({"content": "!"})

    events, rest = join(data)

    assert (events.count(b"data: "), said(events), rest) == (1, "Hello!", b"")


def test_one_event_alone_passes_byte_for_byte() -> None:
    data = b'data:  {"odd":   "spacing"}\n\n'

    assert join(data) == (data, b"")
    assert join(data + b"data: {") == (data, b"data: {")


def test_a_stream_with_other_line_ends_passes_as_it_is() -> None:
    data = (chunk({"content": "a"}) + chunk({"content": "b"})).replace(b"\n", b"\r\n")

    held, rest = join(data[:30])
    passed, left = join(rest + data[30:])
    assert (held + passed, left) == (data, b"")


class Body(httpx2.AsyncByteStream):
    """A body whose pieces come when the test says."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self.pieces.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def aclose(self) -> None:
        self.closed = True


async def test_a_piece_that_arrives_alone_passes_at_once() -> None:
    body = Body()
    reading = aiter(JoiningStream(body))
    for content in ("a", "b"):
        body.pieces.put_nowait(chunk({"content": content}))
        assert await asyncio.wait_for(anext(reading), 1) == chunk({"content": content})


async def test_pieces_that_are_there_come_together() -> None:
    body = Body()
    for piece in (*(chunk({"content": c}) for c in "hello"), None):
        body.pieces.put_nowait(piece)

    handed = [piece async for piece in JoiningStream(body)]

    assert said(b"".join(handed)) == "hello"
    assert b"".join(handed).count(b"data: ") < 5


async def test_a_client_that_stops_at_the_end_mark_can_drain_the_rest() -> None:
    body = Body()
    stream = JoiningStream(body)
    body.pieces.put_nowait(b"data: [DONE]\n\n")
    async for _ in stream:
        break

    body.pieces.put_nowait(b"rest")
    body.pieces.put_nowait(None)

    assert [piece async for piece in stream] == [b"rest"]


async def test_an_error_of_the_wire_comes_after_what_was_read() -> None:
    body = Body()
    body.pieces.put_nowait(chunk({"content": "half"}))
    body.pieces.put_nowait(httpx2.ReadError("gone"))
    reading = aiter(JoiningStream(body))

    assert said(await anext(reading)) == "half"
    with pytest.raises(httpx2.ReadError):
        await anext(reading)


async def test_closing_stops_the_reader_and_closes_the_body() -> None:
    body = Body()
    stream = JoiningStream(body)
    body.pieces.put_nowait(chunk({"content": "a"}))
    await anext(aiter(stream))

    await stream.aclose()

    assert body.closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


def content(message_id: str, delta: str) -> EventFrame:
    kind = "TEXT_MESSAGE_CONTENT"
    return EventFrame(event={"type": kind, "messageId": message_id, "delta": delta})


FRAMES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("ab"), st.text(min_size=1, max_size=3)).map(
            lambda pair: content(*pair)
        ),
        st.just(MessageFrame(message={"kind": "response"})),
        st.just(EventFrame(event={"type": "TEXT_MESSAGE_END", "messageId": "a"})),
    ),
    max_size=20,
)


def spread(frames: list[Frame]) -> list[object]:
    """Frames with each delta as single characters: what a reader of the text sees."""
    seen: list[object] = []
    for frame in frames:
        event = frame.event if isinstance(frame, EventFrame) else {}
        if "delta" in event:
            seen += [(event["messageId"], character) for character in event["delta"]]
        else:
            seen.append(frame)
    return seen


@given(frames=FRAMES)
def test_joined_frames_tell_the_same(frames: list[Frame]) -> None:
    shorter = joined(deque(frames))

    assert spread(shorter) == spread(frames)
    assert len(shorter) <= len(frames)


async def test_a_slow_reader_slows_the_run_down_and_loses_nothing() -> None:
    outbox = Outbox()
    for number in range(HIGH_WATER):
        outbox.put(content("a" if number % 2 else "b", "x"))
    waiting = asyncio.create_task(outbox.room())
    await asyncio.sleep(0)
    assert not waiting.done()

    lines = await outbox.take()

    await asyncio.wait_for(waiting, 1)
    assert lines is not None
    assert len(lines.splitlines()) == HIGH_WATER
    outbox.put(FinalFrame(outcome="success"))
    outbox.close()
    last = await outbox.take()
    assert last is not None
    assert decode(last) == FinalFrame(outcome="success")
    assert await outbox.take() is None
