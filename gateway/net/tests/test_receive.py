"""Cutting frames out of a stream of bytes, and what it costs in memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.gateway.net.receive import (
    GROWTH,
    LARGE_FRAME,
    MAX_CAPACITY,
    MIN_CAPACITY,
    FrameError,
    ReceiveBuffer,
)

LIMIT = 100 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Stream:
    """Gives its bytes in the portions of its choice, as a socket does."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)

    def portion(self, most: int) -> object:
        def recv_into(space: memoryview) -> int:
            count = min(most, len(space), len(self.data))
            space[:count] = self.data[:count]
            self.data = self.data[count:]
            return count

        return recv_into


def received(buffer: ReceiveBuffer, stream: Stream, most: int) -> list[memoryview]:
    buffer.fill(stream.portion(most))  # type: ignore[arg-type]
    return buffer.frames()


@given(
    payloads=st.lists(st.binary(min_size=8, max_size=300), max_size=30),
    portions=st.lists(st.integers(1, 2000), min_size=1, max_size=10),
)
def test_however_the_bytes_arrive_the_frames_are_the_same_and_stay_as_they_were(
    payloads: list[bytes], portions: list[int]
) -> None:
    stream = Stream(b"".join(map(framed, payloads)))
    buffer = ReceiveBuffer(LIMIT)
    frames: list[memoryview] = []
    turn = 0
    while stream.data:
        frames += received(buffer, stream, portions[turn % len(portions)])
        turn += 1
    # All are compared at the end: a buffer that had been used again would show here.
    assert [bytes(frame) for frame in frames] == payloads
    assert buffer.partial == 0


def test_one_byte_at_a_time() -> None:
    stream = Stream(framed(b"0123456789") * 3)
    buffer = ReceiveBuffer(LIMIT)
    frames = []
    while stream.data:
        frames += received(buffer, stream, 1)
    assert [bytes(frame) for frame in frames] == [b"0123456789"] * 3


def test_frames_can_be_written_to_where_they_are() -> None:
    stream = Stream(framed(b"0123456789"))
    (frame,) = received(ReceiveBuffer(LIMIT), stream, 1000)
    frame[:2] = b"xx"
    assert bytes(frame) == b"xx23456789"


@pytest.mark.parametrize("size", [-1, 0, 7, LIMIT + 1, 2**31 - 1, -(2**31)])
def test_a_size_that_no_request_has_is_refused_before_anything_is_allocated(size: int) -> None:
    buffer = ReceiveBuffer(LIMIT)
    with pytest.raises(FrameError, match=str(size)):
        received(buffer, Stream(struct.pack(">i", size) + b"x" * 100), 1000)
    assert buffer.allocated <= MIN_CAPACITY


def test_a_claim_of_the_largest_frame_costs_only_what_really_arrives() -> None:
    stream = Stream(struct.pack(">i", LIMIT) + bytes(3 << 20))
    buffer = ReceiveBuffer(LIMIT)
    while stream.data:
        assert received(buffer, stream, 1 << 16) == []
        assert buffer.allocated <= max(MIN_CAPACITY, 2 * buffer.partial, buffer.partial + GROWTH)


def test_a_connection_that_waits_for_a_request_holds_no_buffer() -> None:
    buffer = ReceiveBuffer(LIMIT)
    received(buffer, Stream(framed(bytes(3000))), 5000)
    assert buffer.allocated == 0
    with pytest.raises(BlockingIOError):
        buffer.fill(_would_block)
    buffer.release()
    assert buffer.allocated == 0


def _would_block(space: memoryview) -> int:
    raise BlockingIOError


def test_the_buffer_of_a_small_burst_does_not_pin_an_empty_one() -> None:
    buffer = ReceiveBuffer(LIMIT)
    frames: list[memoryview] = []
    busy = Stream(framed(bytes(1000)) * 3000)
    while busy.data:
        frames = received(buffer, busy, 1 << 20)
    assert len(frames) > 300, "a busy connection gets a large buffer"
    (small,) = received(buffer, Stream(framed(bytes(100))), 1 << 20)
    assert len(small.obj) < 1000  # type: ignore[arg-type]


def test_large_frames_that_follow_each_other_are_not_moved() -> None:
    size = 10 * LARGE_FRAME
    stream = Stream(framed(bytes(size)) * 8)
    buffer = ReceiveBuffer(LIMIT)
    moved = 0
    while stream.data:
        if received(buffer, stream, 1 << 20):
            moved += buffer.partial
    assert moved < size, "of eight frames less than one was copied"
    assert buffer.allocated <= MAX_CAPACITY
