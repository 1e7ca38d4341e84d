"""The broker: what all handlers share, and the order in which its parts start and stop.

Start: the message log and the delay service upon it are opened and recovered, then the action log, then
SQL; they are reconciled and the subjects' configs applied (`open`, blocking); then the parts' own tasks run
(`run_parts`), and only then can clients connect (`serve`). Stop: no more connections, what was read is
answered, the delay service files what it has, the logs are synced and closed. Waits that are only there to
save a client from asking again (`long_poll`) are cut short.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.delivery.sharing.service import Sharing
from kumquat.core.logs.actions.service import ActionService
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.wheel.service import DelayOptions, open_with_delay
from kumquat.gateway.groups.service import GroupService, limits
from kumquat.gateway.net.limits import Room
from kumquat.gateway.process.loop_watch import Lag
from kumquat.gateway.topics.subjects import SubjectKeeper
from kumquat.meta.registry import Registry
from kumquat.meta.values import LONG_MAX

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from kumquat.core.delivery.sharing.service import SharingStatistics
    from kumquat.core.logs.actions.service import ActionStatistics
    from kumquat.core.logs.disk.files import Files
    from kumquat.core.logs.messages.service import LogStatistics, MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.wheel.service import DelayService, DelayStatistics
    from kumquat.gateway.config.options import BrokerConfig
    from kumquat.gateway.process.loop_watch import LagStatistics

META_FILE = "meta.db"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients are told to connect."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    log: LogStatistics
    delay: DelayStatistics
    groups: ActionStatistics
    sharing: SharingStatistics
    loop: LagStatistics


def log_options(config: BrokerConfig) -> LogOptions:
    return LogOptions(
        directory=config.log_dirs,
        segment_bytes=config.log_segment_bytes,
        index_max_entries=config.log_index_max_entries,
        unsynced_max_bytes=config.log_unsynced_max_bytes,
        tail_bytes=config.log_tail_bytes,
        retention_ms=config.retention_ms,
        retention_bytes=config.log_retention_bytes,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        total_bytes=config.log_total_bytes,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        max_message_bytes=config.message_max_bytes,
        max_decompressed_bytes=config.max_decompressed_bytes,
    )


class Broker:
    """Use `Broker.open`."""

    def __init__(
        self,
        config: BrokerConfig,
        log: MessageService,
        delay: DelayService,
        actions: ActionService,
        registry: Registry,
    ) -> None:
        self.config = config
        self.log = log
        self.delay = delay
        self.actions = actions
        self.registry = registry
        self.node_id = config.node_id
        self.cluster_id = log.cluster_id
        self.subjects = SubjectKeeper(log, registry, config.subject_defaults())
        self.sharing = Sharing(actions, log, registry.group_config)
        self.coordinator = GroupService(
            actions, self.sharing, log.subjects, registry, limits(config)
        )
        self.subjects.before_created = self.coordinator.prepare_added
        self.subjects.on_created = self.coordinator.subject_added
        self.subjects.on_deleted = self.coordinator.subject_removed
        self.subjects.count_pending = self._count_pending
        self.room = Room(config.queued_max_request_bytes)
        self.lag = Lag()
        self.refusals = Complaints(logger)
        """Tells of batches that were refused."""
        self._polls: set[trio.CancelScope] = set()
        self._stop = trio.Event()

    @classmethod
    def open(cls, config: BrokerConfig, files: Files | None = None) -> Broker:
        """Open and recover all that is stored. Blocking."""
        delay_options = DelayOptions(
            max_ms=config.delay_max_ms, cancel_remember_ms=config.delay_cancel_remember_ms
        )
        log, delay = open_with_delay(log_options(config), delay_options, files)
        actions = ActionService.open(config.log_dirs, files)
        registry = Registry.open(config.log_dirs / META_FILE)
        for line in registry.reconcile(log.subjects, config.subject_defaults()):
            logger.warning("%s", line)
        return cls(config, log, delay, actions, registry)

    async def serve(
        self,
        sockets: Sequence[socket.socket],
        admin_socket: socket.socket | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve clients on these bound sockets until `stop`; started when they can connect."""
        from kumquat.gateway.admin.server import AdminServer
        from kumquat.gateway.net.acceptor import Acceptor

        acceptor, admin = Acceptor(self), AdminServer(self)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.run_parts)
            async with trio.open_nursery() as serving:
                await serving.start(acceptor.run, sockets)
                if admin_socket is not None:
                    await serving.start(admin.run, admin_socket)
                task_status.started()
                await self._stop.wait()
                acceptor.stop()
                admin.stop()
                self.end_polls()
            nursery.cancel_scope.cancel()  # the logs sync what is left and close
        self.registry.close()

    async def run_parts(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """The tasks of what is below the connections, until cancelled."""
        log_scope = trio.CancelScope(shield=True)

        async def run_log(task_status: trio.TaskStatus[None]) -> None:
            with log_scope:
                await self.log.run(task_status)

        async with trio.open_nursery() as nursery:
            await nursery.start(run_log)
            try:
                async with trio.open_nursery() as inner:
                    await inner.start(self.actions.run)
                    await inner.start(self.coordinator.run)
                    await inner.start(self.delay.run)
                    task_status.started()
            finally:
                log_scope.cancel()  # last, since its lock guards the folder of all

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Begin a graceful stop."""
        self._stop.set()

    async def _count_pending(self, subject: Subject) -> int:
        return await self.delay.count(subject, 0, LONG_MAX)

    def statistics(self) -> BrokerStatistics:
        return BrokerStatistics(
            log=self.log.statistics(),
            delay=self.delay.statistics(),
            groups=self.actions.statistics(),
            sharing=self.sharing.statistics(self.coordinator.exclusive()),
            loop=self.lag.statistics(),
        )

    def end_polls(self) -> None:
        """Have those who wait for data answered with what there is."""
        for scope in self._polls:
            scope.cancel()

    @contextmanager
    def long_poll(self) -> Iterator[trio.CancelScope]:
        """A wait in here ends early when the broker stops."""
        with trio.CancelScope() as scope:
            if self._stop.is_set():
                scope.cancel()
            self._polls.add(scope)
            try:
                yield scope
            finally:
                self._polls.discard(scope)
