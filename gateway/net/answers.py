"""The answering half of a connection: answers leave in the order of their requests.

An answer waits here while it, or one before it, is not due yet. Only one thing makes an answer wait: a
Produce with acks=all whose batches are not synced. So a queued answer has the log position that must be
synced before it may leave (0: none). The log calls `synced` when a position is synced; that encodes and
sends what is due, without waking a task.

All answers that are due leave with one `send` or `sendmsg`. Small buffers are joined; large ones (the
records of a Fetch) go to the kernel as they are. What the socket does not take is kept, and a task that
lives only as long as that lasts waits for the socket.

`full` tells the reading side to stop. This bounds the memory of a connection whose client does not read its
answers, or whose answers wait behind a sync. For that, an answer that has to wait and can no longer change
(only a Produce's can, to an error) is encoded at once, and its bytes count as those do that the socket has
not taken. Both are charged to the connection's account (limits.py). While there is no room over all
connections, `full` is true sooner.

Nothing here raises for a lost connection: `on_lost` is called once, and all that follows is dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import trio

from kumquat.gateway.net.limits import FREE

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from kumquat.core.errors import KumquatError
    from kumquat.gateway.net.limits import Account

    Buffer = bytes | bytearray | memoryview
    QueuedAnswer = tuple[int, "Codec", int, Any, Any]
    """Position to be synced, codec, correlation id, request (None: the answer is final), response (if it is
    encoded already: bytes or a list of buffers). A plain tuple: one is made for each request."""

MAX_UNSENT = 1 << 20
MAX_PENDING = 8192
MAX_PUSH = 4 << 20
MAX_CROWDED_PUSH = 128 << 10
"""The same while many bytes wait on all connections together."""
JOIN_BELOW = 64 << 10
SMALL_BUFFER = 2 << 10
IOV_MAX = 1024

logger = logging.getLogger(__name__)


class Codec(Protocol):
    """What an answer is made with: a Route, or a template of one."""

    appends: bool

    def encode(self, correlation_id: int, response: Any) -> list[Buffer]: ...

    def refuse(self, request: Any, code: int, message: str) -> Any: ...


def gather(buffers: list[Buffer]) -> list[Buffer]:
    """The same bytes in fewer buffers: small neighbours joined, large ones left alone."""
    if len(buffers) == 1:
        return buffers
    if sum(map(len, buffers)) <= JOIN_BELOW:
        return [b"".join(buffers)]
    gathered: list[Buffer] = []
    run: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < SMALL_BUFFER:
            run.append(buffer)
            continue
        if run:
            gathered.append(b"".join(run))
            run = []
        gathered.append(buffer)
    if run:
        gathered.append(b"".join(run))
    return gathered


def _beginning(output: deque[Buffer], room: int) -> list[Buffer]:
    """The first buffers, as many as one call may take; of a buffer that is too large its beginning."""
    some: list[Buffer] = []
    for buffer in islice(output, IOV_MAX):
        if len(buffer) >= room:
            some.append(memoryview(buffer)[:room])
            break
        some.append(buffer)
        room -= len(buffer)
    return some


class Answers:
    __slots__ = (
        "_account",
        "_draining",
        "_lost",
        "_nursery",
        "_on_lost",
        "_output",
        "_pending",
        "_progress",
        "_sock",
        "_synced",
        "held",
        "sent",
        "unsent",
    )

    def __init__(
        self,
        sock: socket.socket,
        nursery: trio.Nursery,
        on_lost: Callable[[str], None],
        account: Account,
    ) -> None:
        self._account = account
        self._sock = sock
        self._nursery = nursery
        self._on_lost = on_lost
        self._pending: deque[QueuedAnswer] = deque()
        self._output: deque[Buffer] = deque()
        self._synced = 0
        self._draining = False
        self._lost = False
        self._progress: trio.Event | None = None
        self.held = 0
        """Bytes of final answers that are not due yet."""
        self.unsent = 0
        self.sent = 0

    @property
    def full(self) -> bool:
        waiting = self.unsent + self.held
        if waiting > FREE and (waiting > MAX_UNSENT or self._account.cramped):
            return True
        return len(self._pending) > MAX_PENDING

    @property
    def empty(self) -> bool:
        return not self._output and not self._pending

    @property
    def pending(self) -> int:
        """How many answers are not due yet."""
        return len(self._pending)

    async def wait_room(self) -> None:
        """Until the client has taken enough of its answers."""
        while self.full and not self._lost:
            await self._wait_progress()

    async def wait_sent(self) -> None:
        """Until every answer has left, or never can."""
        while not self.empty and not self._lost:
            await self._wait_progress()

    def add(self, answers: Sequence[QueuedAnswer]) -> None:
        """Queue the answers of one burst, and send all that are due."""
        self._pending.extend(answers)
        self._send_due()
        if self._pending:
            self._encode_final(min(len(answers), len(self._pending)))

    def synced(self, position: int, error: KumquatError | None) -> None:
        """The log is synced up to `position`, or never will be: then `error` is the answer."""
        if error is not None:
            self._refuse(position, error)
        if position > self._synced:
            self._synced = position
        self._send_due()

    def close(self) -> None:
        """Drop all that has not left; nothing is sent from here on."""
        self._lost = True
        self._pending.clear()
        self._output.clear()
        self.held = self.unsent = 0
        self._account.unsent(0)
        self._signal()

    def _refuse(self, position: int, error: KumquatError) -> None:
        for index, (due_at, codec, correlation_id, request, _) in enumerate(self._pending):
            if self._synced < due_at <= position:
                response = codec.refuse(request, error.error_code, str(error))
                self._pending[index] = (due_at, codec, correlation_id, request, response)

    def _send_due(self) -> None:
        pending, synced = self._pending, self._synced
        buffers: list[Buffer] = []
        try:
            while pending and pending[0][0] <= synced:
                _, codec, correlation_id, _, response = pending.popleft()
                if response.__class__ is bytes:
                    buffers.append(response)
                elif response.__class__ is list:
                    self.held -= sum(map(len, response))
                    buffers += response
                else:
                    buffers += codec.encode(correlation_id, response)
        except Exception:
            self._cannot_encode()
            return
        if buffers and not self._lost:
            self._transmit(gather(buffers))
        self._signal()

    def _encode_final(self, count: int) -> None:
        """Of the last so many answers, encode those that are final, and charge for their bytes."""
        pending = self._pending
        for index in range(-count, 0):
            position, codec, correlation_id, request, response = pending[index]
            if request is not None:
                continue
            try:
                encoded = (
                    [response]
                    if response.__class__ is bytes
                    else gather(codec.encode(correlation_id, response))
                )
            except Exception:
                self._cannot_encode()
                return
            self.held += sum(map(len, encoded))
            pending[index] = (position, codec, correlation_id, None, encoded)
        if self.held:
            self._charge()

    def _cannot_encode(self) -> None:
        """A fault of the broker. One answer cannot be left out: the client expects them in order."""
        logger.exception("an answer could not be encoded; its connection is closed")
        self._lose("an answer could not be encoded")

    def _transmit(self, buffers: list[Buffer]) -> None:
        self._output.extend(buffers)
        self.unsent += sum(map(len, buffers))
        if not self._draining:
            self._push()
            if self._output:
                self._draining = True
                self._nursery.start_soon(self._drain)
        if self._output or self._account.charged:
            self._charge()

    def settle(self) -> None:
        """No answer is in the making: charge for what waits here, and for no more."""
        if not self._lost:
            self._account.unsent(self.unsent + self.held)

    def _charge(self) -> None:
        """Charge for what waits here, beside an answer that may be in the making."""
        if not self._lost:
            self._account.left(self.unsent + self.held)

    def _push(self) -> None:
        """Send until all is out, or the socket takes no more, or others should have their turn: to copy
        megabytes into the kernel takes milliseconds."""
        output, sock = self._output, self._sock
        room = MAX_CROWDED_PUSH if self._account.crowded else MAX_PUSH
        while output and room > 0:
            try:
                if len(output) > 1:
                    count = sock.sendmsg(_beginning(output, room))
                elif len(output[0]) > room:
                    count = sock.send(memoryview(output[0])[:room])
                else:
                    count = sock.send(output[0])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(f"sending failed: {error.strerror or error}")
                return
            room -= count
            self.unsent -= count
            self.sent += count
            self._drop(count)

    def _drop(self, count: int) -> None:
        output = self._output
        while output and count >= len(output[0]):
            count -= len(output.popleft())
        if count:
            output[0] = memoryview(output[0])[count:]

    async def _drain(self) -> None:
        try:
            while self._output:
                await trio.lowlevel.wait_writable(self._sock)
                self._push()
                self._charge()
                self._signal()
        except (OSError, trio.ClosedResourceError) as error:
            self._lose(f"sending failed: {error}")
        finally:
            self._draining = False

    def _lose(self, reason: str) -> None:
        if not self._lost:
            self.close()
            self._on_lost(reason)

    async def _wait_progress(self) -> None:
        self._progress = trio.Event()
        await self._progress.wait()

    def _signal(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None
