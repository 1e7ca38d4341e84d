"""What one client may cost the others: sizes of requests, and memory over all connections.

The rules:
- **Each API has a largest request** (`largest_request`). Only Produce carries data. For all others eight
  megabytes are more than real clients send: an admin tool that names each of 100,000 topics sends four, and
  so may a SyncGroup, in which the leader sends the assignments of all members. A member of a group sends
  only its own metadata: two megabytes. A frame that announces more is refused when its first six bytes are
  here. How many elements a request may have is bounded by the decoder (wire/decoder.py); work on many
  elements gives way to others (turns.py).
- **Memory is charged before it is used**, over all connections, to `queued.max.request.bytes`:
    receiving  a frame of more than FREE bytes takes room for all of it before the rest is read. Until there
               is room, its connection is not read. The buffer itself grows with what arrives.
    held       a request of more than FREE bytes takes room for what it becomes decoded (DECODED times its
               size) until it is answered. A Produce is not decoded: its batches are views of the frame,
               and the log bounds what it keeps of them.
    unsent     bytes that wait until a client takes them. A Fetch is granted a share of what is free before
               it reads, and its answer is smaller when little is free. Other answers are charged when they
               are made; a connection with unsent answers is not read while there is no room.
  Small requests (up to FREE bytes of each kind and connection) are not charged and pass at any time.
- **Each kind has a room of its own** (`Room`): a request is received, then handled, then answered, and must
  not wait for room that a request in an earlier stage holds. Large frames have their own room too, so that
  ordinary requests never wait behind frames of 100 MB. In it there is one at a time, or several that fit.
- **Who holds room must make progress** (timeouts.py). A frame that does not get complete and answers that
  are not taken end their connection, and much sooner when others have waited for room for PRESSED_SECONDS.
  Long polls with large requests are then answered early.
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

PRODUCE, JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT = 0, 11, 68, 76
DEFAULT_LARGEST = 8 * MIB
LARGEST = dict.fromkeys((JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT), 2 * MIB)


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
        """Taken while an answer of many megabytes is made: one at a time."""

    def receiving(self, frame: int) -> Memory:
        """The room for a frame of this size."""
        return self.large if frame > LARGE else self.received

    def decoded(self, frame: int) -> int:
        """What a request of this size is charged for its decoded form."""
        return min(frame * DECODED, self.handled.limit // 2)

    def pressed(self, now: float) -> set[Memory]:
        """The rooms for which somebody has waited too long."""
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
        """There is no room: make no more answers for a client that has not taken those it has."""
        return self._memory.free <= 0

    @property
    def crowded(self) -> bool:
        """Many bytes wait to be sent, over all connections."""
        return self._memory.free < self._memory.limit - (self._memory.limit >> 2)

    def grant(self, wanted: int) -> int:
        """How many bytes an answer may have now: at most `wanted`, and FREE in any case."""
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
        """Wait until there is room for one batch, and it is this connection's turn."""
        await self._memory.take(ONE_BATCH)
        self.charged += ONE_BATCH

    def made(self, size: int) -> None:
        """An answer of this size is made, and not yet given to the socket."""
        self._making = size
        self._settle()

    def unsent(self, size: int) -> None:
        """The answer is given to the socket. So many bytes of all answers are not taken yet."""
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
