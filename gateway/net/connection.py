"""One client's connection: a task that reads requests, and sees to it that each is answered.

A wake-up of a task costs more than a request, so the task takes all that the socket has, handles the whole
frames in it (up to MAX_BURST of them: a *burst*), writes the log once and sends all answers at once. It
waits only when the socket is empty, when its client does not take its answers, when the log wants
producers to wait, for an async handler, or for batches to be opened (`_open`). Nothing that is staged in
the log outlives a burst: before any wait the log is written (`_end_burst`).

After TURN_SECONDS of uninterrupted work the task gives way to others. A request of more than FREE bytes
that is no Produce is decoded in a thread, and so is its answer encoded.

What a connection may hold, and when it has to wait for room, is in limits.py: `_reserve` takes room for a
frame that is being received, `_decode_large` for what a request becomes.

How a connection ends:
- the client closes it, or `stop` is called: what was read is still answered, within LINGER_SECONDS;
- what came is no Kafka request: one line in the log says what was wrong, where, and from whom;
- a Produce with acks=0 failed: the log says why;
- the server's watch over idle clients, over frames that do not get complete and answers that are not
  taken, or a failed send, cancels it.
A client that closes its side while it waits in a long poll is seen by that watch too: the poll ends.
No other connection is touched by any of these.
"""

from __future__ import annotations

import logging
import socket
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import trio

from kumquat.core.errors import KumquatError
from kumquat.core.pools import DECODE, in_thread
from kumquat.gateway.net.answers import Answers
from kumquat.gateway.net.dispatch import ANSWERABLE, Disconnect, dispatch
from kumquat.gateway.net.limits import FREE
from kumquat.gateway.net.receive import FrameError, ReceiveBuffer
from kumquat.gateway.net.repeats import Repeats, ToOpen
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.gateway.wire.errors import WireError
from kumquat.gateway.wire.frame import read_request_header

if TYPE_CHECKING:
    from kumquat.core.complaints import Complaints
    from kumquat.core.memory import Memory
    from kumquat.gateway.net.answers import Slot
    from kumquat.gateway.net.dispatch import Opening, Route, Session, Staged

TURN_SECONDS = 0.001
LINGER_SECONDS = 5.0
MAX_BURST = 256
MIN_BYTES_PER_SECOND = 8192
PRESSED_FRAME_SECONDS = 5.0
MIN_PRESSED_BYTES_PER_SECOND = 1 << 20
UNTAKEN_SECONDS = 300.0
"""As long as a Java consumer may work on what it has before it reads on (max.poll.interval.ms)."""
IMPATIENT_SECONDS = 2.0
"""The same, and for a frame of which nothing more comes, while others wait for room."""

logger = logging.getLogger(__name__)


class Connection:
    __slots__ = (
        "_answers",
        "_buffer",
        "_burst",
        "_busy",
        "_calls_until",
        "_complaints",
        "_frame_began",
        "_held",
        "_highest",
        "_last_active",
        "_last_received",
        "_last_taken",
        "_log",
        "_memory",
        "_repeats",
        "_reserved",
        "_room",
        "_scope",
        "_seen_sent",
        "_silent",
        "_sock",
        "_staged",
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
        self._sock = sock
        self._complaints = complaints
        self._log = session.broker.log
        self._room = session.broker.room
        self._memory = self._room.received
        """Where the frame that is being received has its room."""
        self._reserved = 0
        self._held = 0
        """Room for the request that is being handled."""
        self._buffer = ReceiveBuffer(max_frame)
        self._repeats = Repeats()
        self._answers = Answers(sock, nursery, self.abort, session.account)
        self._scope = trio.CancelScope()
        self._stopping = False
        self._busy = False
        """In a handler or held back: not waiting for the client to send."""
        self._last_active = self._last_received = self._last_taken = trio.current_time()
        self._frame_began: float | None = None
        self._calls_until = 0.0
        """When requests that are no Produce have used up their turn."""
        self._seen_sent = 0
        self._burst: list[Slot] = []
        self._staged = False
        self._silent = False
        """A staged request of this burst wants no answer."""
        self._highest = 0
        """The highest position to be synced for an answer of this burst."""

    async def run(self) -> None:
        try:
            with self._scope:
                try:
                    await self._serve()
                except (Disconnect, FrameError) as error:
                    self._tell(str(error))
                except OSError as error:
                    logger.debug("%s: %s", self.session.peer, error)
                    return
                with trio.move_on_after(LINGER_SECONDS):
                    await self._answers.wait_sent()
        finally:
            self.session.closed = True
            self._answers.close()
            self._release()
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
        logger.debug("%s: %s", self.session.peer, reason)
        self._scope.cancel()

    @property
    def polling(self) -> int | None:
        """The socket of a client that waits for others or for data, to see whether it has gone."""
        return self._sock.fileno() if self.session.poll is not None else None

    def end_poll(self) -> None:
        """Answer now what waits."""
        self.session.end_poll()

    def watch(self, now: float, max_idle: float, max_receive: float, pressed: set[Memory]) -> None:
        """End the connection of a client that neither sends nor takes, or does so too slowly; `pressed`:
        where others wait for room."""
        if self._answers.sent != self._seen_sent:
            self._seen_sent = self._answers.sent
            self._last_active = self._last_taken = now
        elif not self._answers.unsent:
            self._last_taken = now
        wanted = (
            (self._held and self._room.handled in pressed)
            or (self._reserved and self._memory in pressed)
            or (self.session.account.charged and self._room.answers in pressed)
        )
        if wanted:
            self.session.end_poll()
        if now - self._last_taken > (IMPATIENT_SECONDS if wanted else UNTAKEN_SECONDS):
            size = self._answers.unsent
            self._end(f"{size} bytes of answers were not taken", now - self._last_taken)
        elif self._busy and not self._answers.unsent:
            return
        elif self._frame_began is not None and self._is_late(
            now, now - self._frame_began, max_receive, pressed
        ):
            came = f"only {self._buffer.partial} bytes of a frame came"
            self._end(came, now - self._frame_began)
        elif now - self._last_active > max_idle:
            logger.info("%s: idle for %.0f s; closed", self.session.peer, max_idle)
            self._scope.cancel()

    def _is_late(self, now: float, taken: float, max_receive: float, pressed: set[Memory]) -> bool:
        """Whether the frame that has begun should be complete after so many seconds."""
        silent, partial = now - self._last_received, self._buffer.partial
        if self._reserved and self._memory in pressed:
            if silent > IMPATIENT_SECONDS:
                return True
            return taken > PRESSED_FRAME_SECONDS + partial / MIN_PRESSED_BYTES_PER_SECOND
        return silent > max_receive or taken > max_receive + partial / MIN_BYTES_PER_SECOND

    def _end(self, reason: str, seconds: float) -> None:
        self._tell(f"{reason} in {seconds:.0f} s")
        self._scope.cancel()

    async def _serve(self) -> None:
        buffer, recv_into = self._buffer, self._sock.recv_into
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
            self._last_active = self._last_received = trio.current_time()
            frames = buffer.frames()
            if frames:
                self._frame_began = None
                if not self._reserved and len(frames[0].obj) > FREE:  # type: ignore[arg-type]
                    self._overdraw(len(frames[0].obj))  # type: ignore[arg-type]
                for first in range(0, len(frames), MAX_BURST):
                    if first:
                        await trio.lowlevel.checkpoint()
                    self._calls_until = perf_counter() + TURN_SECONDS
                    await self._handle(frames[first : first + MAX_BURST])
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
        if self._buffer.partial and self._frame_began is None:
            self._frame_began = trio.current_time()
        await trio.lowlevel.wait_readable(self._sock)

    async def _reserve(self, size: int) -> None:
        """Take room for the frame that has begun, before more of it is read."""
        self._memory = self._room.receiving(size)
        if not self._memory.try_take(size):
            self._frame_began = None
            self._busy = True
            try:
                await self._memory.take(size)
            finally:
                self._busy = False
            self._last_received = trio.current_time()
        self._reserved = size

    def _overdraw(self, size: int) -> None:
        """Requests came whole: they are charged until they are handled, which may take a wait."""
        self._memory = self._room.received
        self._memory.overdraw(size)
        self._reserved = size

    def _release(self) -> None:
        """Give back all room that requests have."""
        self._memory.give(self._reserved)
        self._room.handled.give(self._held)
        self._reserved = self._held = 0

    async def _handle(self, frames: list[memoryview]) -> None:
        """Handle all requests of a burst, then write and answer."""
        blocked = self._log.produce_blocked
        template = None if blocked else self._repeats.template
        try:
            for frame in frames:
                if template is not None:
                    slot = template.stage(frame)
                    if slot is not None:
                        if isinstance(slot, ToOpen):
                            await self._open(*slot)
                            blocked = self._log.produce_blocked
                            template = None if blocked else self._repeats.template
                            continue
                        self._staged = True
                        if slot[0] > self._highest:
                            self._highest = slot[0]
                        self._burst.append(slot)
                        continue
                route, correlation_id, start = self._route(frame)
                if route is None:
                    continue
                if len(frame) > FREE and not route.appends:
                    request = await self._decode_large(route, frame, start)
                else:
                    request = self._decode(route, frame, start)
                if not route.appends:
                    await self._call(route, correlation_id, request)
                    if perf_counter() > self._calls_until:
                        await self._give_way()
                    blocked = self._log.produce_blocked
                else:
                    if blocked:
                        await self._hold_back()
                        blocked = False
                    opening = self._stage(route, correlation_id, request)
                    if opening is None:
                        self._repeats.learn(self.session, route, frame, start, request)
                    else:
                        await self._open(route, correlation_id, request, opening)
                        blocked = self._log.produce_blocked
                template = None if blocked else self._repeats.template
        finally:
            self._end_burst()
        if self._answers.full:
            await self._hold_back()

    def _route(self, frame: memoryview) -> tuple[Route | None, int, int]:
        """Route, correlation id, where the body begins; no route: it is answered."""
        try:
            key, version, correlation_id, client_id, start = read_request_header(frame, 0)
        except WireError as error:
            raise Disconnect(str(error)) from error
        self.session.client_id = client_id
        self.session.api_key = key
        self.session.version = version
        route = dispatch.routes.get((key, version)) or dispatch.find(key, version)
        if route is None:
            self._refuse_version(key, version, correlation_id)
        return route, correlation_id, start

    def _decode(self, route: Route, frame: memoryview, start: int) -> Any:
        try:
            request, _ = route.decode(frame, start)
        except WireError as error:
            raise self._malformed(route, error) from error
        return request

    async def _decode_large(self, route: Route, frame: memoryview, start: int) -> Any:
        """The same without stopping the loop, once there is room for what it becomes."""
        self._end_burst()
        cost = self._room.decoded(len(frame))
        self._busy = True
        try:
            await self._room.handled.take(cost)
            self._held = cost
            request, _ = await in_thread(DECODE, route.decode, frame, start)
        except WireError as error:
            raise self._malformed(route, error) from error
        finally:
            self._busy = False
        return request

    def _malformed(self, route: Route, error: WireError) -> Disconnect:
        return Disconnect(f"{dispatch.describe(route.api.key, route.version)}: {error}")

    def _stage(self, route: Route, correlation_id: int, request: Any) -> Opening | None:
        self._staged = True
        try:
            staged: Staged | Opening = route.handler(self.session, request)
            if not isinstance(staged, tuple):
                return staged
            response, position = staged
        except Disconnect:
            raise
        except Exception as error:
            self._burst.append(
                (0, route, correlation_id, None, self._refuse(route, request, error))
            )
            return None
        if response is None:
            self._silent = True
            return None
        if position > self._highest:
            self._highest = position
        self._burst.append((position, route, correlation_id, request, response))
        return None

    async def _open(
        self, route: Route, correlation_id: int, request: Any, opening: Opening
    ) -> None:
        """Do the rest of a request that has to wait, and answer it.

        What it has staged so far is written first, with all before it. If that fails, nothing of the
        request has happened, and it is refused as a whole."""
        failure = self._end_burst()
        if self._answers.full:
            await self._hold_back()
        self._busy = True
        try:
            if failure is not None:
                raise failure
            response, position = await opening()
        except Disconnect:
            raise
        except Exception as error:
            response, position = self._refuse(route, request, error), 0
        finally:
            self._busy = False
        if response is not None:
            self._burst.append((position, route, correlation_id, request, response))
            self._highest = position
        self._end_burst()

    async def _call(self, route: Route, correlation_id: int, request: Any) -> None:
        if route.is_async:
            self._end_burst()
        if self._answers.full:
            await self._hold_back()
        self._busy = True
        try:
            response = route.handler(self.session, request)
            if route.is_async:
                response = await response
        except Disconnect:
            raise
        except Exception as error:
            response = self._refuse(route, request, error)
        finally:
            self._busy = False
        if self._held:
            response = await self._encode_large(route, correlation_id, response)
        self._burst.append((0, route, correlation_id, None, response))
        charged = self.session.account.charged
        if route.is_async or charged:
            self._end_burst()
        if charged:
            self._answers.settle()
        if self._held:
            self._room.handled.give(self._held)
            self._held = 0

    async def _give_way(self) -> None:
        """After many calls in one burst."""
        self._end_burst()
        await trio.lowlevel.checkpoint()
        self._calls_until = perf_counter() + TURN_SECONDS

    async def _encode_large(self, route: Route, correlation_id: int, response: Any) -> Any:
        """The answer to a large request as bytes, made in a thread; itself if it cannot be encoded."""

        def encode() -> bytes:
            return b"".join(route.encode(correlation_id, response))

        self._end_burst()
        try:
            return await in_thread(DECODE, encode)
        except Exception:
            return response  # the answering side says so, and closes the connection

    async def _hold_back(self) -> None:
        """Until the client has taken its answers and the log takes more."""
        self._end_burst()
        self._busy = True
        try:
            await self._answers.wait_room()
            while self._log.produce_blocked:
                await self._log.wait_produce_unblocked()
        finally:
            self._busy = False

    def _end_burst(self) -> KumquatError | None:
        """Write what was staged, and queue the answers; gives why it could not be written."""
        burst = self._burst
        self._burst = []
        failure: KumquatError | None = None
        if self._staged:
            self._staged = False
            try:
                self._log.write_nowait()
            except KumquatError as error:
                failure = error
                burst = [self._unwritten(slot, error) for slot in burst]
                self._highest = 0
        if burst:
            self._answers.add(burst)
        highest = self._highest
        if highest:
            self._highest = 0
            self._log.call_when_synced(highest, partial(self._answers.synced, highest))
        silent, self._silent = self._silent, False
        if silent and failure:
            raise Disconnect(f"a Produce with acks=0 could not be stored: {failure}")
        return failure

    def _unwritten(self, slot: Slot, error: KumquatError) -> Slot:
        _, route, correlation_id, request, response = slot
        if route.appends and request is not None:
            response = route.refuse(request, error.error_code, str(error))
        return 0, route, correlation_id, None, response

    def _refuse(self, route: Route, request: Any, error: Exception) -> Any:
        """The answer to a request that failed."""
        if isinstance(error, ANSWERABLE):
            response = route.refuse(request, error.error_code, str(error))
        else:
            logger.error("%s", self._from(f"{route.api.name} failed"), exc_info=error)
            message = f"the broker failed: {type(error).__name__}"
            response = route.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, message)
        if response is None:
            raise Disconnect(f"{route.api.name} v{route.version}: {error}") from error
        return response

    def _refuse_version(self, key: int, version: int, correlation_id: int) -> None:
        fallback = dispatch.fallback(key)
        if fallback is None:
            raise Disconnect(f"{dispatch.describe(key, version)} is not served")
        route, response = fallback
        self._burst.append((0, route, correlation_id, None, response))

    def _tell(self, reason: str) -> None:
        address = self.session.peer.rpartition(":")[0]
        self._complaints.warning(address, self._from(f"{reason}; connection closed"))

    def _from(self, what: str) -> str:
        return f"{self.session.peer} (client id {self.session.client_id!r}): {what}"
