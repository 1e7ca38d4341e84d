"""The requests that came together on one connection (a *burst*): handled in order, written at once.

A write costs more than a request, so the log is written once for all requests of a burst, and all their
answers leave at once. Nothing that is staged in the log outlives a burst: before any wait the log is
written and the answers are queued (`_end_burst`). Waits there are for an async handler, for batches to be
opened (`_open`), for room (`_decode_large`), for a client that does not take its answers or a log that
wants producers to wait (`_hold_back`).

A request of more than FREE bytes that is no Produce is decoded in a thread, and so is its answer encoded.
After TURN_SECONDS of calls the burst gives way to other tasks.

A failure becomes an answer (`_refuse`; the rules are in dispatch.py). What no answer can say is raised as
Disconnect.
"""

from __future__ import annotations

import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import trio

from kumquat.core.errors import KumquatError
from kumquat.core.pools import DECODE, in_thread
from kumquat.gateway.net.dispatch import ANSWERABLE, Disconnect, dispatch
from kumquat.gateway.net.limits import FREE
from kumquat.gateway.net.repeats import Repeats, ToOpen
from kumquat.gateway.net.traffic import UNKNOWN
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.gateway.wire.errors import WireError
from kumquat.gateway.wire.frame import read_request_header

if TYPE_CHECKING:
    from kumquat.gateway.net.answers import Answers, QueuedAnswer
    from kumquat.gateway.net.dispatch import Opening, Route, Session, Staged
    from kumquat.gateway.net.timeouts import Progress

TURN_SECONDS = 0.001

logger = logging.getLogger(__name__)


class BurstHandler:
    """Of one connection; it handles one burst at a time."""

    __slots__ = (
        "_answers",
        "_burst",
        "_calls_until",
        "_highest",
        "_log",
        "_progress",
        "_repeats",
        "_room",
        "_session",
        "_silent",
        "_staged",
        "_traffic",
        "held",
    )

    def __init__(self, session: Session, answers: Answers, progress: Progress) -> None:
        self._session = session
        self._answers = answers
        self._progress = progress
        self._log = session.broker.log
        self._room = session.broker.room
        self._traffic = session.broker.traffic
        self._repeats = Repeats()
        self.held = 0
        """Room that the request which is being handled has for what it becomes decoded."""
        self._calls_until = 0.0
        """When requests that are no Produce have used up their turn."""
        self._burst: list[QueuedAnswer] = []
        self._staged = False
        self._silent = False
        """A staged request of this burst wants no answer."""
        self._highest = 0
        """The highest position to be synced for an answer of this burst."""

    def release(self) -> None:
        """Give back the room that a request has."""
        self._room.handled.give(self.held)
        self.held = 0

    async def handle(self, frames: list[memoryview]) -> None:
        """Handle all requests of a burst, then write and answer."""
        self._calls_until = perf_counter() + TURN_SECONDS
        blocked = self._log.produce_blocked
        template = None if blocked else self._repeats.template
        routed = 0
        try:
            for frame in frames:
                if template is not None:
                    answer = template.stage(frame)
                    if answer is not None:
                        if isinstance(answer, ToOpen):
                            await self._open(*answer)
                            blocked = self._log.produce_blocked
                            template = None if blocked else self._repeats.template
                            continue
                        self._staged = True
                        if answer[0] > self._highest:
                            self._highest = answer[0]
                        self._burst.append(answer)
                        continue
                routed += 1
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
                        self._repeats.learn(self._session, route, frame, start, request)
                    else:
                        await self._open(route, correlation_id, request, opening)
                        blocked = self._log.produce_blocked
                template = None if blocked else self._repeats.template
            self._traffic.repeated += len(frames) - routed
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
        self._session.client_id = client_id
        self._session.api_key = key
        self._session.version = version
        route = dispatch.routes.get((key, version)) or dispatch.find(key, version)
        counted = key if route is not None or key in dispatch.apis else UNKNOWN
        self._traffic.requests[counted] += 1
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
        self._progress.busy = True
        try:
            await self._room.handled.take(cost)
            self.held = cost
            request, _ = await in_thread(DECODE, route.decode, frame, start)
        except WireError as error:
            raise self._malformed(route, error) from error
        finally:
            self._progress.busy = False
        return request

    def _malformed(self, route: Route, error: WireError) -> Disconnect:
        return Disconnect(f"{dispatch.describe(route.api.key, route.version)}: {error}")

    def _stage(self, route: Route, correlation_id: int, request: Any) -> Opening | None:
        self._staged = True
        try:
            staged: Staged | Opening = route.handler(self._session, request)
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
        if failure is not None:
            response, position = self._refuse(route, request, failure), 0
        else:
            response, position = await self._opened(route, request, opening)
        if response is not None:
            self._burst.append((position, route, correlation_id, request, response))
            self._highest = position
        self._end_burst()

    async def _opened(self, route: Route, request: Any, opening: Opening) -> Staged:
        self._progress.busy = True
        try:
            return await opening()
        except Disconnect:
            raise
        except Exception as error:
            return self._refuse(route, request, error), 0
        finally:
            self._progress.busy = False

    async def _call(self, route: Route, correlation_id: int, request: Any) -> None:
        if route.is_async:
            self._end_burst()
        if self._answers.full:
            await self._hold_back()
        self._progress.busy = True
        try:
            response = route.handler(self._session, request)
            if route.is_async:
                response = await response
        except Disconnect:
            raise
        except Exception as error:
            response = self._refuse(route, request, error)
        finally:
            self._progress.busy = False
        if self.held:
            response = await self._encode_large(route, correlation_id, response)
        self._burst.append((0, route, correlation_id, None, response))
        charged = self._session.account.charged
        if route.is_async or charged:
            self._end_burst()
        if charged:
            self._answers.settle()
        if self.held:
            self.release()

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
        self._progress.busy = True
        try:
            await self._answers.wait_room()
            while self._log.produce_blocked:
                await self._log.wait_produce_unblocked()
        finally:
            self._progress.busy = False

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
                # A new one, without traceback and cause: those refer to this frame, which refers to it,
                # and such a cycle would keep the burst.
                failure = type(error)(*error.args)
                burst = [self._unwritten(answer, error) for answer in burst]
                self._highest = 0
        if burst:
            late = self._log.log.late_end
            if late:
                burst = [_held_until(late, answer) for answer in burst]
                self._highest = late
            self._answers.add(burst)
        highest = self._highest
        if highest:
            self._highest = 0
            self._log.call_when_synced(highest, partial(self._answers.synced, highest))
        silent, self._silent = self._silent, False
        if silent and failure:
            raise Disconnect(f"a Produce with acks=0 could not be stored: {failure}")
        return failure

    def _unwritten(self, answer: QueuedAnswer, error: KumquatError) -> QueuedAnswer:
        _, route, correlation_id, request, response = answer
        if route.appends and request is not None:
            self._traffic.produce_failures += 1
            response = route.refuse(request, error.error_code, str(error))
        return 0, route, correlation_id, None, response

    def _refuse(self, route: Route, request: Any, error: Exception) -> Any:
        """The answer to a request that failed."""
        if route.appends:
            self._traffic.produce_failures += 1
        if isinstance(error, ANSWERABLE):
            response = route.refuse(request, error.error_code, str(error))
        else:
            logger.error("%s", self._session.describe(f"{route.api.name} failed"), exc_info=error)
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


def _held_until(position: int, answer: QueuedAnswer) -> QueuedAnswer:
    """A Produce with acks=1 is answered when its bytes are in the file; here, when they are synced."""
    _, route, correlation_id, request, response = answer
    if route.appends and request is not None:
        return position, route, correlation_id, request, response
    return answer
