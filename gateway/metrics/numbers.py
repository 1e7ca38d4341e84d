"""The numbers of the broker as a whole, read on the event loop.

`take` copies what the parts count (their `statistics()`, their histograms) into one object, which a thread
then formats. Other tasks have their turn between the parts: the numbers of one part belong together, those
of two parts may be some milliseconds apart.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from platform import python_version
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

import trio

from kumquat.core.pools import THREADS, at_work_by_kind
from kumquat.gateway.metrics import health
from kumquat.gateway.net.limits import api_name
from kumquat.gateway.net.traffic import UNKNOWN
from kumquat.version import version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.core.delivery.dead_letters.service import DeadLetterStatistics
    from kumquat.core.delivery.sharing.service import SharingStatistics
    from kumquat.core.histogram import Histogram
    from kumquat.core.logs.actions.service import ActionStatistics
    from kumquat.core.logs.messages.service import LogStatistics
    from kumquat.core.memory import Memory
    from kumquat.core.wheel.service import DelayStatistics
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.history.service import HistoryStatistics
    from kumquat.gateway.metrics.disk import DiskState
    from kumquat.gateway.net.loop_lag import LagStatistics

SYNC_US = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000),
)
LOOP_US = (
    *(1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000),
    *(1_000_000, 5_000_000),
)
LATE_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000),
    *(600_000, 3_600_000),
)
HANDED_OUT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram as Prometheus wants it."""

    bounds: tuple[float, ...]
    counts: list[int]
    """How many were not above each bound."""
    count: int
    total: float


class Used(NamedTuple):
    """Memory of one kind."""

    held: int
    limit: int
    waiting: int
    """How many wait for some."""


@dataclass(frozen=True, slots=True)
class Numbers:
    version: str
    python: str
    node_id: int
    address: str
    log: LogStatistics
    actions: ActionStatistics
    delay: DelayStatistics
    sharing: SharingStatistics
    dead_letters: DeadLetterStatistics
    history: HistoryStatistics
    loop: LagStatistics
    sync_messages: Buckets
    sync_actions: Buckets
    lateness: Buckets
    loop_lag: Buckets
    hand_outs: Buckets
    threads: dict[str, int]
    """By kind (core/pools.py)."""
    threads_limit: dict[str, int]
    rooms: dict[str, Used]
    """What connections hold (net/limits.py)."""
    requests: dict[str, int]
    """By API."""
    fetched_bytes: int
    produce_failures: int
    fetch_failures: int
    connections: int
    connections_opened: int
    connections_refused: int
    connections_limit: int
    disk: DiskState | None
    checks: list[health.Check]
    scrape_cpu_seconds: float
    """What scrapes have cost so far."""


async def take(broker: Broker, scrape_cpu_seconds: float) -> tuple[Numbers, float]:
    """And how much CPU time that took on the event loop."""
    began, traffic, room = thread_time(), broker.traffic, broker.room
    spent = 0.0
    log, actions = broker.log.statistics(), broker.actions.statistics()
    sync_messages = buckets(broker.log.sync_times, SYNC_US, 1e6)
    sync_actions = buckets(broker.actions.sync_times, SYNC_US, 1e6)
    spent, began = await _give_way(spent, began)
    delay, lateness = broker.delay.statistics(), buckets(broker.delay.lateness, LATE_MS, 1e3)
    spent, began = await _give_way(spent, began)
    sharing, letters = broker.sharing.statistics(), broker.dead_letters.statistics()
    hand_outs = buckets(broker.sharing.sizes, HANDED_OUT, 1)
    spent, began = await _give_way(spent, began)
    config = broker.config
    advertised = config.advertised(0, config.listeners[0].port)
    numbers = Numbers(
        version=version(),
        python=python_version(),
        node_id=broker.node_id,
        address=f"{advertised.host}:{advertised.port}",
        log=log,
        actions=actions,
        delay=delay,
        sharing=sharing,
        dead_letters=letters,
        history=broker.history.statistics(),
        loop=broker.lag.statistics(),
        sync_messages=sync_messages,
        sync_actions=sync_actions,
        lateness=lateness,
        loop_lag=buckets(broker.lag.histogram, LOOP_US, 1e6),
        hand_outs=hand_outs,
        threads=at_work_by_kind(),
        threads_limit=dict(THREADS),
        rooms={
            "large_requests": _used(room.large),
            "requests": _used(room.received),
            "decoded": _used(room.handled),
            "answers": _used(room.answers),
        },
        requests={_api(key): count for key, count in traffic.by_api().items()},
        fetched_bytes=traffic.fetched_bytes,
        produce_failures=traffic.produce_failures,
        fetch_failures=traffic.fetch_failures,
        connections=traffic.connections,
        connections_opened=traffic.opened,
        connections_refused=traffic.refused,
        connections_limit=config.max_connections,
        disk=broker.disk.state,
        checks=health.ready(broker).checks,
        scrape_cpu_seconds=scrape_cpu_seconds,
    )
    return numbers, spent + thread_time() - began


async def _give_way(spent: float, began: float) -> tuple[float, float]:
    """Let others have their turn; their time is not ours."""
    spent += thread_time() - began
    await trio.lowlevel.checkpoint()
    return spent, thread_time()


def buckets(histogram: Histogram, bounds: Sequence[int], unit: float) -> Buckets:
    """`unit`: how many of what was counted are one of what is shown."""
    shown = tuple(bound / unit for bound in bounds)
    return Buckets(shown, histogram.below(bounds), histogram.count, histogram.total / unit)


def _api(key: int) -> str:
    return "unknown" if key == UNKNOWN else api_name(key)


def _used(memory: Memory) -> Used:
    return Used(memory.limit - memory.free, min(memory.limit, sys.maxsize), memory.waiting)
