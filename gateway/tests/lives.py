"""A broker that lives, stops, is killed, loses power and lives again, on one disk in memory.

    async with lives(tmp_path) as world:
        client = Caller(world, "c")
        await client.call(request, version)
        await world.kill()

All of the broker is real but for its sockets: requests go to the handlers as a connection gives them, and
the files are `FaultyFiles`. SQL is a real file, and no faults strike it. Segments are small, so that a
short story rolls, indexes, merges and deletes.

A start may be refused (StartError) when a fault strikes it, unless it is a read that the device refuses:
whoever started the broker starts it again. Any other exception of a start, of a stop, or of a running
broker ends the test.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import trio

import kumquat.gateway.handlers  # noqa: F401  (registers every API)
from kumquat.core.delivery.dead_letters.opening import open_joined
from kumquat.core.errors import KumquatError, StartError
from kumquat.core.wheel.service import DelayOptions, open_with_delay
from kumquat.core.wheel.tests.delays import Clock
from kumquat.gateway.broker import META_FILE, Broker, log_options
from kumquat.gateway.config.options import BrokerConfig, Listener
from kumquat.gateway.net.dispatch import ANSWERABLE, Endpoint, Route, Session, dispatch
from kumquat.gateway.tests.faulty_files import FaultyFiles, Trace
from kumquat.gateway.tests.one_thread import gate
from kumquat.meta.registry import Registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from kumquat.core.logs.tests.disk import Mood

SEGMENT_BYTES = 9_000
ACTION_SEGMENT_BYTES = 14_000
RETENTION_CHECK_MS = 5_000
NO_LISTENER = Listener("127.0.0.1", 0)


def use_small_merges(patch: pytest.MonkeyPatch) -> None:
    """Schedule files are merged by three, not by eight, and most of a merge goes through the disk."""
    patch.setattr("kumquat.core.wheel.files.writing.merge.AT_ONCE", 3)
    patch.setattr("kumquat.core.wheel.files.writing.merge.HELD", 200)


class World:
    def __init__(self, folder: Path, nursery: trio.Nursery, trace: Trace) -> None:
        self.trace = trace
        self.files = FaultyFiles(folder / "data", trace=trace)
        self.clock = Clock()
        self.broker: Broker
        self.lost = 0
        """Messages that groups have given up, in lives that are over."""
        self.corrupt = 0
        """Reads that found damage, and delayed messages given up as damaged, likewise."""
        self.starts = 0
        self.restarted = False
        """An operator had to restart it."""
        self._nursery = nursery
        self._scope: trio.CancelScope
        self._over: trio.Event

    # --- starting --------------------------------------------------------------------------------

    async def start(self) -> None:
        self.starts += 1
        while True:
            before = self.trace.hits
            try:
                self.broker = self._open()
                break
            except StartError:
                if self.trace.hits == before or self.trace.is_of_data:
                    raise
                self.files = self.files.after_kill()  # the process has ended
        self._scope, self._over = trio.CancelScope(), trio.Event()
        await self._nursery.start(self._run, self.broker, self._scope, self._over)

    def _open(self) -> Broker:
        """As Broker.open does it, with another clock and smaller files."""
        config = BrokerConfig(listeners=(NO_LISTENER,), log_dirs=self.files.directory)
        options = replace(
            log_options(config),
            segment_bytes=SEGMENT_BYTES,
            reserve_bytes=4_096,
            tail_bytes=2_000,
            index_max_entries=30,
            retention_check_interval_ms=RETENTION_CHECK_MS,
        )
        now_ms = self.clock.now_ms
        log, delay, actions, joiner = open_joined(
            lambda join: open_with_delay(options, DelayOptions(), self.files, now_ms, join),
            now_ms,
            ACTION_SEGMENT_BYTES,
        )
        registry = Registry.open(config.log_dirs / META_FILE)
        registry.reconcile(log.subjects)
        return Broker(config, log, delay, actions, registry, joiner)

    async def _run(
        self,
        broker: Broker,
        scope: trio.CancelScope,
        over: trio.Event,
        task_status: trio.TaskStatus[None],
    ) -> None:
        with scope:
            await broker.run(task_status=task_status)
        broker.close()
        over.set()

    # --- ending ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Cleanly."""
        was_fenced = self.fenced
        await self._take_down()
        if not was_fenced:
            assert not self.files.open_handles(), f"still open: {self.files.open_names()}"

    async def kill(self) -> None:
        """Kill -9: what was written stays."""
        await self._replace(self.files.after_kill())

    async def cut(self, seed: int, mood: Mood | None = None) -> None:
        """The power goes: what was synced stays, and any part of what was not."""
        from random import Random

        await self._replace(self.files.after_power_cut(Random(seed), mood))

    async def _replace(self, files: FaultyFiles) -> None:
        """What the dead broker does while it is taken down happens to a disk that nobody sees."""
        self.files = files
        gate.release()
        await self._take_down()

    async def _take_down(self) -> None:
        self.lost, self.corrupt = self.damage()
        self._scope.cancel()
        await self._over.wait()

    def damage(self) -> tuple[int, int]:
        """What was given up as lost or damaged, in all lives."""
        numbers = self.broker.statistics()
        lost = self.lost + numbers.sharing.lost + numbers.sharing.expired
        return lost, self.corrupt + numbers.log.corrupt_reads + numbers.delay.damaged

    # --- going on --------------------------------------------------------------------------------

    @property
    def fenced(self) -> bool:
        return bool(self.broker.log.log.fenced or self.broker.actions.log.fenced)

    async def patience(self) -> None:
        """What a client does after a failure: wait, and try again. What an operator does when a failed
        sync has fenced a log: restart."""
        await trio.sleep(1)
        if self.fenced:
            assert self.trace.struck, "a log is fenced, and nothing has failed"
            assert self.trace.struck.startswith(("fdatasync", "fsync_dir")), (
                f"a log is fenced, and no sync has failed: {self.trace.struck}"
            )
            await self.kill()
            await self.start()
            self.restarted = True


class Caller:
    """A client's connection; a new one for each life of the broker."""

    def __init__(self, world: World, client_id: str = "tests") -> None:
        self._world = world
        self._client_id = client_id
        self._session: Session | None = None

    async def call(self, request: Any, version: int) -> Any:
        """The answer, as the connection would send it."""
        broker = self._world.broker
        session = self._session
        if session is None or session.broker is not broker:
            endpoint = Endpoint("127.0.0.1", 9092)
            session = Session(broker, endpoint, "127.0.0.1:1", self._client_id)
            self._session = session
        session.version = version
        route = dispatch.find(request.api_key, version)
        assert route is not None
        try:
            if route.appends:
                return await self._append(broker, session, route, request)
            answer = route.handler(session, request)
            return await answer if route.is_async else answer
        except ANSWERABLE as error:
            return route.refuse(request, error.error_code, str(error))

    async def _append(self, broker: Broker, session: Session, route: Route, request: Any) -> Any:
        try:
            staged = route.handler(session, request)
        finally:
            broker.log.write_nowait()
        if not isinstance(staged, tuple):
            staged = await staged()
        response, position = staged
        try:
            await broker.log.wait_synced(position)
        except KumquatError as error:
            return route.refuse(request, error.error_code, str(error))
        return response


@asynccontextmanager
async def lives(folder: Path, trace: Trace | None = None) -> AsyncIterator[World]:
    """A broker that runs; it is taken down at the end."""
    async with trio.open_nursery() as nursery:
        world = World(folder, nursery, trace or Trace())
        await world.start()
        yield world
        nursery.cancel_scope.cancel()
