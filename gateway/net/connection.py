"""One client's connection: a task that reads requests, and sees to it that each is answered.

A wake-up of a task costs more than a request. So the task takes all that the socket has, has the whole
frames in it handled together (up to MAX_BURST of them: burst.py), and waits only when the socket is empty.
After TURN_SECONDS of uninterrupted work it gives way to others.

What a connection may hold, and when it has to wait for room, is in limits.py: `_reserve` takes room for a
frame that is being received. How long a client may take is in timeouts.py.

How a connection ends:
- the client closes it, or `stop` is called: what was read is still answered, within LINGER_SECONDS;
- what came is no Kafka request: one line in the log says what was wrong, where, and by which client;
- a Produce with acks=0 failed: the log says why;
- its client is idle or too slow (`watch`), or a send fails.
A client that closes its side while it waits in a long poll is seen by the acceptor: the poll ends.
None of these touches another connection. In each the memory of the connection is free at once: no reference
cycle holds it until the garbage collector comes, which is rare (process/garbage.py).
"""

from __future__ import annotations

import logging
import socket
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from kumquat.gateway.net.answers import Answers
from kumquat.gateway.net.burst import TURN_SECONDS, BurstHandler
from kumquat.gateway.net.dispatch import SERVING, Disconnect
from kumquat.gateway.net.limits import FREE
from kumquat.gateway.net.receive import FrameError, ReceiveBuffer
from kumquat.gateway.net.timeouts import Progress

if TYPE_CHECKING:
    from kumquat.core.complaints import Complaints
    from kumquat.core.memory import Memory
    from kumquat.gateway.net.dispatch import Session

LINGER_SECONDS = 5.0
MAX_BURST = 256

logger = logging.getLogger(__name__)


class Connection:
    __slots__ = (
        "_answers",
        "_buffer",
        "_burst",
        "_complaints",
        "_memory",
        "_progress",
        "_reserved",
        "_room",
        "_scope",
        "_sock",
        "_stopping",
        "session",
    )

    def __init__(
        self,
        sock: socket.socket,
        session: Session,
        nursery: trio.Nursery,
        max_frame: int,
        complaints: Complaints,
    ) -> None:
        self.session = session
        session.fd = sock.fileno()
        self._sock = sock
        self._complaints = complaints
        self._room = session.broker.room
        self._memory = self._room.received
        """Where the frame that is being received has its room, and how much."""
        self._reserved = 0
        self._buffer = ReceiveBuffer(max_frame)
        self._progress = Progress(trio.current_time())
        self._scope = trio.CancelScope()
        # Not a method of the connection: it would tie the two into a reference cycle, and what they hold
        # would wait for the garbage collector.
        on_lost = partial(_abort, session, self._scope)
        self._answers = Answers(sock, nursery, on_lost, session.account)
        self._burst = BurstHandler(session, self._answers, self._progress)
        self._stopping = False

    async def run(self) -> None:
        SERVING.set(self.session)
        try:
            with self._scope:
                try:
                    await self._serve()
                except (Disconnect, FrameError) as error:
                    self._report(str(error))
                except OSError as error:
                    logger.debug("%s: %s", self.session.peer, error)
                    return
                finally:
                    self._buffer.drop()
                    self._release()
                    self.session.end()
                with trio.move_on_after(LINGER_SECONDS):
                    await self._answers.wait_sent()
        finally:
            self.session.closed = True
            self._answers.close()
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    @property
    def pending(self) -> int:
        """How many answers wait for a sync, or behind one that does."""
        return self._answers.pending

    @property
    def unsent(self) -> int:
        """How many bytes of answers the client has not taken."""
        return self._answers.unsent

    def stop(self) -> None:
        """Read no more; answer what was read, then close."""
        self._stopping = True
        try:
            self._sock.shutdown(socket.SHUT_RD)  # wakes the task if it waits for the client
        except OSError:
            self._scope.cancel()

    def abort(self, reason: str) -> None:
        """Close at once."""
        _abort(self.session, self._scope, reason)

    @property
    def polling(self) -> int | None:
        """The socket of a client that waits for others or for data, to see whether it has gone."""
        return self._sock.fileno() if self.session.poll is not None else None

    def end_poll(self) -> None:
        """Answer now what waits."""
        self.session.end_poll()

    def watch(self, now: float, max_idle: float, max_receive: float, pressed: set[Memory]) -> None:
        """Close the connection if its client is idle or too slow (timeouts.py); `pressed`: where others
        wait for room."""
        progress, unsent = self._progress, self._answers.unsent
        progress.look(now, self._answers.sent, unsent)
        frame_pressed = bool(self._reserved) and self._memory in pressed
        wanted = (
            frame_pressed
            or (self._burst.held and self._room.handled in pressed)
            or (self.session.account.charged and self._room.answers in pressed)
        )
        if wanted:
            self.session.end_poll()
        fault = progress.fault(
            now,
            unsent=unsent,
            partial=self._buffer.partial,
            max_receive=max_receive,
            pressed=bool(wanted),
            frame_pressed=frame_pressed,
        )
        if fault is not None:
            self._report(fault)
            self._scope.cancel()
        elif progress.is_idle(now, max_idle, unsent):
            logger.info("%s: idle for %.0f s; closed", self.session.peer, max_idle)
            self._scope.cancel()

    async def _serve(self) -> None:
        buffer, recv_into = self._buffer, self._sock.recv_into
        progress, burst = self._progress, self._burst
        turn_began = perf_counter()
        while not self._stopping:
            if self._room.received.free <= 0 and not self._reserved:
                buffer.cramp()
            try:
                received, more = buffer.fill(recv_into)
            except BlockingIOError:
                await self._wait_readable()
                turn_began = perf_counter()
                continue
            if not received:
                return
            progress.last_active = progress.last_received = trio.current_time()
            frames = buffer.frames()
            if frames:
                progress.frame_began = None
                if not self._reserved and len(frames[0].obj) > FREE:  # type: ignore[arg-type]
                    self._overdraw(len(frames[0].obj))  # type: ignore[arg-type]
                for first in range(0, len(frames), MAX_BURST):
                    if first:
                        await trio.lowlevel.checkpoint()
                    await burst.handle(frames[first : first + MAX_BURST])
                if self._reserved:
                    self._release()
                self.session.hurried = False
                alone = len(frames) == 1
                frames = []
            else:
                alone = False
            if buffer.partial and not self._reserved and buffer.announced > FREE:
                alone = False
                await self._reserve(buffer.announced)
            if alone and not more and not buffer.partial:
                # One request alone: its client now waits for the answer. Do not ask for more in vain.
                await self._wait_readable()
                turn_began = perf_counter()
            elif perf_counter() - turn_began > TURN_SECONDS:
                await trio.lowlevel.checkpoint()
                turn_began = perf_counter()

    async def _wait_readable(self) -> None:
        self._buffer.release()
        if self._buffer.partial and self._progress.frame_began is None:
            self._progress.frame_began = trio.current_time()
        await trio.lowlevel.wait_readable(self._sock)

    async def _reserve(self, size: int) -> None:
        """Take room for the frame that has begun, before more of it is read."""
        self._memory = self._room.receiving(size)
        if not self._memory.try_take(size):
            progress = self._progress
            progress.frame_began = None
            progress.busy = True
            try:
                await self._memory.take(size)
            finally:
                progress.busy = False
            progress.last_received = trio.current_time()
        self._reserved = size

    def _overdraw(self, size: int) -> None:
        """Requests came whole: they are charged until they are handled, which may take a wait."""
        self._memory = self._room.received
        self._memory.overdraw(size)
        self._reserved = size

    def _release(self) -> None:
        """Give back all room that requests have."""
        self._memory.give(self._reserved)
        self._reserved = 0
        self._burst.release()

    def _report(self, reason: str) -> None:
        address = self.session.peer.rpartition(":")[0]
        line = self.session.describe(f"{reason}; connection closed")
        self._complaints.warning(address, line)


def _abort(session: Session, scope: trio.CancelScope, reason: str) -> None:
    logger.debug("%s: %s", session.peer, reason)
    scope.cancel()
