"""The broker: what all handlers share, and the order in which its parts start and stop.

Start: `open` (blocking) opens and recovers the message log with the delay service on it and, inside its
lock, the action log (core/delivery/dead_letters/opening.py); then SQL. It reconciles them and applies the
subjects' configs. `run` then starts the tasks of the parts. Only after that may clients connect:
process/server.py starts the listeners.

Stop, in the opposite order: no more connections, and what was read is answered (process/server.py); the
delay service writes what it has to its files; the logs are synced and closed. A wait that only saves a
client from asking again (`long_poll`) is cut short by `stop`.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.delivery.dead_letters.opening import open_joined
from kumquat.core.delivery.dead_letters.service import DeadLetters
from kumquat.core.delivery.sharing.service import Sharing
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.keys.service import KeyIndex
from kumquat.core.wheel.service import DelayOptions, open_with_delay
from kumquat.gateway.groups.service import GroupService, limits
from kumquat.gateway.history.service import History
from kumquat.gateway.metrics.disk import Disk
from kumquat.gateway.metrics.exposition import Metrics
from kumquat.gateway.net.limits import Room
from kumquat.gateway.net.loop_lag import Lag
from kumquat.gateway.net.traffic import Traffic
from kumquat.gateway.shares.service import ShareService
from kumquat.gateway.topics.letters import LettersMaker
from kumquat.gateway.topics.subjects import SubjectKeeper
from kumquat.gateway.topics.table import INTERNAL
from kumquat.meta.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.core.delivery.dead_letters.join import Joiner
    from kumquat.core.delivery.dead_letters.service import DeadLetterStatistics
    from kumquat.core.delivery.sharing.service import SharingStatistics
    from kumquat.core.logs.actions.service import ActionService, ActionStatistics
    from kumquat.core.logs.disk.files import Files
    from kumquat.core.logs.messages.service import LogStatistics, MessageService
    from kumquat.core.wheel.service import DelayService, DelayStatistics
    from kumquat.gateway.config.options import BrokerConfig, Listener
    from kumquat.gateway.history.service import HistoryStatistics
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.net.loop_lag import LagStatistics

META_FILE = "meta.db"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    log: LogStatistics
    delay: DelayStatistics
    groups: ActionStatistics
    sharing: SharingStatistics
    dead_letters: DeadLetterStatistics
    history: HistoryStatistics
    loop: LagStatistics


def _holding(log: MessageService) -> set[int]:
    """The subjects with messages that must not go because their configs were lost. The history has a bound
    of its own."""
    return {s.id for s in log.subjects if s.earliest < s.next_sequence and s.name not in INTERNAL}


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
        joiner: Joiner,
    ) -> None:
        self.config = config
        self.log = log
        self.delay = delay
        self.actions = actions
        self.registry = registry
        self.node_id = config.node_id
        self.cluster_id = log.cluster_id
        self.sharing = Sharing(actions, log, registry.group_config)
        self.coordinator = GroupService(actions, self.sharing, log, registry, limits(config))
        self.shares = ShareService(
            actions.groups,
            self.sharing.shares,
            registry.group_config,
            config.group_share_max_share_sessions,
        )
        self.subjects = SubjectKeeper(
            log, registry, config.subject_defaults(), self.coordinator, delay
        )
        self.dead_letters = DeadLetters(
            actions,
            log,
            joiner,
            append=self.sharing.append,
            config=registry.group_config,
            make=LettersMaker(self.subjects, log).make,
            wait_doomed=self.sharing.wait_doomed,
        )
        log.before_expiry = self.dead_letters.expire
        self.keys = KeyIndex(log)
        self.subjects.keys_changed = self.keys.config_changed
        self.history = History(
            log,
            actions,
            delay.shell,
            self.dead_letters.settling,
            self.subjects,
            config.history_buffer_events,
        )
        self.room = Room(config.queued_max_request_bytes)
        self.lag = Lag()
        self.traffic = Traffic()
        self.disk = Disk(config.log_dirs)
        self.metrics = Metrics(config.metrics_max_subjects, config.metrics_max_groups)
        self.started = False
        """Whether all parts run."""
        self.sessions: set[Session] = set()
        """Of the clients that are connected."""
        self.advertised: list[Listener] = []
        """Where clients find its listeners, once these are bound."""
        self.refusals = Complaints(logger)
        """Reports batches that were refused."""
        self._polls: set[trio.CancelScope] = set()
        self._stop = trio.Event()

    @classmethod
    def open(cls, config: BrokerConfig, files: Files | None = None) -> Broker:
        """Open and recover what is stored. Blocking."""
        delay_options = DelayOptions(
            max_ms=config.delay_max_ms, cancel_remember_ms=config.delay_cancel_remember_ms
        )
        log, delay, actions, joiner = open_joined(
            lambda join: open_with_delay(log_options(config), delay_options, files, join=join)
        )
        registry = Registry.open(config.log_dirs / META_FILE)
        for line in registry.reconcile(log.subjects, _holding(log)):
            logger.warning("%s", line)
        return cls(config, log, delay, actions, registry, joiner)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the tasks of the parts until cancelled; started when handlers can use them."""
        log_scope = trio.CancelScope(shield=True)

        async def run_log(task_status: trio.TaskStatus[None]) -> None:
            with log_scope:
                await self.log.run(task_status)

        async with trio.open_nursery() as nursery:
            await nursery.start(run_log)
            try:
                async with trio.open_nursery() as inner:
                    await inner.start(self.actions.run)
                    await inner.start(self.sharing.run)
                    await inner.start(self.coordinator.run)
                    await inner.start(self.shares.run)
                    await inner.start(self.delay.run)
                    await inner.start(self.dead_letters.run)
                    await inner.start(self.keys.run)
                    await inner.start(self.history.run)
                    inner.start_soon(self.disk.run)
                    self.started = True
                    task_status.started()
            finally:
                log_scope.cancel()  # last: its lock guards the folder of all parts

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Begin a graceful stop: `wait_stopping` returns."""
        self._stop.set()

    async def wait_stopping(self) -> None:
        await self._stop.wait()

    def close(self) -> None:
        """Close what is not closed by the end of `run`."""
        self.registry.close()

    def statistics(self) -> BrokerStatistics:
        return BrokerStatistics(
            log=self.log.statistics(),
            delay=self.delay.statistics(),
            groups=self.actions.statistics(),
            sharing=self.sharing.statistics(self.coordinator.exclusive()),
            dead_letters=self.dead_letters.statistics(),
            history=self.history.statistics(),
            loop=self.lag.statistics(),
        )

    def end_polls(self) -> None:
        """Answer those who wait for data with what there is."""
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
