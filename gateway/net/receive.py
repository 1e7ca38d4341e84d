"""The receiving half of a connection, apart from the socket: bytes come in, whole frames go out.

A frame is four bytes of size and that many bytes of request. `fill` takes what the socket has with one
call; `frames` cuts all whole frames out of it, as views, without copying.

Who owns the memory: the batches of a Produce stay in use as views (the log's in-memory tail keeps them). So
a buffer from which frames were cut is given away with them and never written again. The next bytes go to a
new buffer, together with a copy of the frame that had only begun.

How large a buffer is: as large as what lately came at once, between MIN_CAPACITY and MAX_CAPACITY. Before
it is given away it is cut down to what it holds, so that the tail does not keep empty space in memory.
While nothing is received there is no buffer: an idle connection costs none.

A frame that is larger than the buffer makes it grow as bytes arrive, at most double and at most GROWTH at a
time: a client that announces 2 GB and sends nothing costs nothing. A large frame is received up to its own
end and no further, and the next buffer is as large as such a frame, so that little of the next frame has to
be copied.

A frame that announces more than its API may have (limits.py) is refused when its API key is here.
`announced` is the size of the frame that has begun, so that room can be taken for it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from kumquat.gateway.net.limits import FREE, api_name, largest_request

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_CAPACITY = 4 << 10
MAX_CAPACITY = 1 << 20
GROWTH = 1 << 20
LARGE_FRAME = 64 << 10
SMALLEST_REQUEST = 8  # API key, version, correlation id

_ZEROS = bytes(GROWTH)
_read_size = Struct(">i").unpack_from
_read_key = Struct(">h").unpack_from


class FrameError(Exception):
    """The size before a frame is not one that a request can have, so nothing after it can be read."""


class ReceiveBuffer:
    __slots__ = ("_buffer", "_capacity", "_filled", "_max_frame")

    def __init__(self, max_frame: int) -> None:
        self._max_frame = max_frame
        self._capacity = MIN_CAPACITY
        self._buffer: bytearray | None = None
        self._filled = 0

    @property
    def partial(self) -> int:
        """How many bytes are here of the frame that is not whole yet."""
        return self._filled

    @property
    def announced(self) -> int:
        """The size of that frame; 0 if it is not known yet."""
        if self._buffer is None or self._filled < 4:
            return 0
        return int(_read_size(self._buffer, 0)[0])

    def cramp(self) -> None:
        """Receive little at a time, so that frames of more than FREE bytes have to wait for room."""
        self._capacity = MIN_CAPACITY

    @property
    def allocated(self) -> int:
        return 0 if self._buffer is None else len(self._buffer)

    def fill(self, recv_into: Callable[[memoryview], int]) -> tuple[int, bool]:
        """Receive once. Returns the number of bytes, and whether the socket may have more of them.

        What `recv_into` raises is passed on, and nothing has changed.
        """
        buffer, filled = self._buffer, self._filled
        if buffer is None:
            buffer = self._buffer = bytearray(self._capacity)
        limit = len(buffer)
        if filled >= 4:
            end = _read_size(buffer, 0)[0] + 4
            if filled == limit:
                buffer.extend(memoryview(_ZEROS)[: min(end - filled, filled)])
                limit = len(buffer)
            if LARGE_FRAME < end < limit:
                limit = end
        with memoryview(buffer) as view, view[filled:limit] as space:
            received = recv_into(space)
        self._filled = filled + received
        return received, self._filled == limit

    def release(self) -> None:
        """Let go of an empty buffer before a wait."""
        if not self._filled:
            self._buffer = None

    def drop(self) -> None:
        """Let go of the frame that has begun: no more of it comes."""
        self._buffer = None
        self._filled = 0

    def frames(self) -> list[memoryview]:
        """All whole frames, each without its size. Raises FrameError."""
        buffer, filled = self._buffer, self._filled
        if buffer is None or filled < 4:
            return []
        bounds: list[tuple[int, int]] = []
        position = 0
        while filled - position >= 4:
            size = _read_size(buffer, position)[0]
            if not SMALLEST_REQUEST <= size <= self._max_frame:
                raise FrameError(self._describe(size, buffer, position))
            if size > FREE and filled - position >= 6:
                self._check_api(size, buffer, position)
            end = position + 4 + size
            if end > filled:
                break
            bounds.append((position + 4, end))
            position = end
        if not bounds:
            return []
        self._adapt(position, len(buffer), alone=len(bounds) == 1)
        self._keep_rest(buffer, position)
        view = memoryview(buffer)
        return [view[start:end] for start, end in bounds]

    def _check_api(self, size: int, buffer: bytearray, position: int) -> None:
        key = _read_key(buffer, position + 4)[0]
        largest = largest_request(key, self._max_frame)
        if size > largest:
            raise FrameError(
                f"{api_name(key)} of {size} bytes, more than the {largest} it may have"
            )

    def _describe(self, size: int, buffer: bytearray, position: int) -> str:
        first = bytes(buffer[position : position + 4])
        if first[:2] == b"\x16\x03":
            return "the client speaks TLS, this listener is PLAINTEXT"
        if first in (b"GET ", b"POST", b"HEAD", b"PUT "):
            return "the client speaks HTTP, not Kafka's protocol"
        if size > self._max_frame:
            return f"a frame of {size} bytes, more than socket.request.max.bytes={self._max_frame}"
        return f"a frame of {size} bytes, which no request can have"

    def _keep_rest(self, buffer: bytearray, position: int) -> None:
        """Begin the next buffer with what follows the whole frames, and trim this one."""
        rest = self._filled - position
        if rest:
            capacity = max(self._capacity, rest)
            if rest >= 4:
                end = _read_size(buffer, position)[0] + 4
                if LARGE_FRAME < end < capacity:
                    capacity = end
            following = bytearray(max(capacity, rest))
            following[:rest] = buffer[position : self._filled]
            self._buffer = following
        else:
            self._buffer = None
        self._filled = rest
        if position < len(buffer):
            del buffer[position:]

    def _adapt(self, used: int, size: int, *, alone: bool) -> None:
        if alone and used > LARGE_FRAME:
            self._capacity = min(used, MAX_CAPACITY)  # the next one is probably as large
        elif used > size // 2:
            self._capacity = min(max(self._capacity, 2 * size), MAX_CAPACITY)
        elif used < self._capacity // 4:
            self._capacity = max(self._capacity // 2, MIN_CAPACITY)
