"""What one client may cost the others: sizes of requests, and memory over all connections.

The rules:
- **Each API has a largest request** (`largest_request`). Only Produce carries data. Of all others eight
  megabytes are more than real clients send: an admin tool that names each of 100,000 topics sends four, and
  SyncGroup's leader sends the assignments of all members. A group member has its own metadata to send.
  A frame that announces more is refused when its first six bytes are here. How many elements a request may
  have is bounded by the decoder (wire/decoder.py); work on many elements gives way to others (turns.py).
- **Memory is charged before it is taken**, over all connections, to `queued.max.request.bytes`:
    receiving  a frame of more than FREE bytes takes room for all of it before the rest of it is read. Until
               there is room, its connection is not read. The buffer itself grows with what arrives.
    held       a request of more than FREE bytes takes room for what it becomes decoded (DECODED times its
               size) until it is answered. A Produce is not decoded: its batches are views of the frame,
               and the log bounds what it keeps of them.
    unsent     bytes that wait for a client to take them. A Fetch is granted a share of what is free before
               it reads, and answers with less when little is free. Other answers are charged when they are
               made; a connection with unsent answers is not read while there is no room.
  Small requests (up to FREE bytes of each kind and connection) are not charged and pass at any time.
- **Each kind has a room of its own** (`Room`), so that nobody holds what another waits for: a request is
  received, then handled, then answered. Large frames have their own too: who sends ordinary requests never
  waits behind frames of 100 MB. There it is one at a time, or several that fit.
- **Whoever holds room must make progress** (Connection.watch). Frames that do not get complete and answers
  that are not taken end their connection; much sooner when others have waited for room for
  PRESSED_SECONDS. Long polls with large requests are then answered early.
- Memory for inflating batches is bounded where they are inflated.
"""

from __future__ import annotations

from kumquat.core.memory import Memory
from kumquat.gateway.wire.message import REQUESTS

MIB = 1 << 20
FREE = 16 << 10
LARGE = 2 * MIB
DECODED = 16
ONE_BATCH = MIB
PRESSED_SECONDS = 1.0
UNLIMITED = 1 << 62

PRODUCE, JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT = 0, 11, 68
DEFAULT_LARGEST = 8 * MIB
LARGEST = {JOIN_GROUP: 2 * MIB, CONSUMER_GROUP_HEARTBEAT: 2 * MIB}


def largest_request(key: int, max_frame: int) -> int:
    """How many bytes a request of this API may have."""
    return max_frame if key == PRODUCE else min(LARGEST.get(key, DEFAULT_LARGEST), max_frame)


def api_name(key: int) -> str:
    message = REQUESTS.get(key)
    return message.__name__.removesuffix("Request") if message is not None else f"API {key}"


class Room:
    """The memory that all connections share."""

    def __init__(self, limit: int) -> None:
        limit = UNLIMITED if limit < 0 else limit
        self.large = Memory(limit // 2)
        self.received = Memory(limit // 8)
        self.handled = Memory(limit // 8)
        self.answers = Memory(limit // 4)
        self.huge = Memory(1)
        """Taken by who makes an answer of many megabytes: one at a time."""

    def receiving(self, frame: int) -> Memory:
        """Where a frame of this size takes room."""
        return self.large if frame > LARGE else self.received

    def decoded(self, frame: int) -> int:
        """What a request of this size is charged for what it becomes decoded."""
        return min(frame * DECODED, self.handled.limit // 2)

    def pressed(self, now: float) -> set[Memory]:
        """Where somebody has waited for too long."""
        rooms = (self.large, self.received, self.handled, self.answers)
        return {memory for memory in rooms if memory.waited(now) > PRESSED_SECONDS}


class Account:
    """What one connection is charged for its answers: those being made, and those not sent yet."""

    __slots__ = ("_making", "_memory", "_unsent", "charged")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.charged = 0
        self._making = 0
        self._unsent = 0

    @property
    def cramped(self) -> bool:
        """There is no room: make nothing more for a client that has not taken what there is."""
        return self._memory.free <= 0

    @property
    def crowded(self) -> bool:
        """Others have much that waits to be sent."""
        return self._memory.free < self._memory.limit - (self._memory.limit >> 2)

    def grant(self, wanted: int) -> int:
        """How many bytes of an answer may be made now: no more than `wanted`, no less than FREE."""
        memory = self._memory
        spare = self.charged - (self._unsent if self._unsent > FREE else 0)
        share = 0 if memory.waiting else memory.free >> 3
        granted = min(wanted, max(share, spare))
        if granted <= FREE:
            return min(wanted, FREE)
        self._making = granted
        self._settle()
        return granted

    async def wait_for_batch(self) -> None:
        """Until there is room for one batch, and it is this connection's turn."""
        await self._memory.take(ONE_BATCH)
        self.charged += ONE_BATCH

    def made(self, size: int) -> None:
        """An answer of this size is held, and not yet given to the socket."""
        self._making = size
        self._settle()

    def unsent(self, size: int) -> None:
        """What was made is given to the socket, which has not taken so many bytes of all answers."""
        self._making = 0
        self.left(size)

    def left(self, size: int) -> None:
        """The client has taken some: so many bytes of all answers are left. One may be in the making."""
        self._unsent = size
        self._settle()

    def _settle(self) -> None:
        held = self._making + self._unsent
        due = held if held > FREE else 0
        if due > self.charged:
            self._memory.overdraw(due - self.charged)
        elif due < self.charged:
            self._memory.give(self.charged - due)
        self.charged = due
