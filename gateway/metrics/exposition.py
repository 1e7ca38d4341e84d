"""GET /metrics: all numbers of a broker in Prometheus' text format.

    numbers.take, Walk.count_…      on the event loop, in slices
    Metrics.choose                  in a thread: who has series of its own
    Walk.…_rows                     on the event loop, in slices
    Metrics.write                   in a thread: the text

What it costs does not grow with the series that are left out, but for one look at each: see README. One
scrape is made at a time; who asks meanwhile waits. `kumquat_metrics_cpu_seconds_total` says what all of
them have cost.

There is no global registry: two brokers in one process do not see each other's numbers. The process's own
(CPU, memory, descriptors) are of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING

import trio

from kumquat.gateway.metrics.numbers import take
from kumquat.gateway.metrics.rows import pair_lines, subject_lines
from kumquat.gateway.metrics.selection import Busiest, Selection
from kumquat.gateway.metrics.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.gateway.broker import Broker
    from kumquat.gateway.metrics.families import LeftOut
    from kumquat.gateway.metrics.numbers import Numbers
    from kumquat.gateway.metrics.walk import Pair, PairRow, SubjectRow, Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""That of Prometheus' text format."""


@dataclass(frozen=True, slots=True)
class Chosen:
    subjects: list[int]
    pairs: list[Pair]
    pending: list[int]


@dataclass(frozen=True, slots=True)
class Rows:
    subjects: list[SubjectRow]
    pairs: list[PairRow]
    members: list[tuple[str, int]]
    pending: list[tuple[str, int]]


class Metrics:
    """What a broker remembers from scrape to scrape."""

    def __init__(self, max_subjects: int, max_pairs: int) -> None:
        self.max_groups = max_pairs
        self.lock = trio.Lock()
        self.cpu_seconds = 0.0
        self._subjects: Busiest[int] = Busiest(max_subjects)
        self._pairs: Selection[Pair] = Selection(max_pairs)
        self._pending: Selection[int] = Selection(max_subjects)

    def choose(
        self,
        subjects: Mapping[int, int],
        pairs: Mapping[Pair, int],
        pending: Mapping[int, int],
        now: float,
    ) -> Chosen:
        """In a thread."""
        began = thread_time()
        chosen = Chosen(
            self._subjects.choose_by_growth(subjects, now),
            self._pairs.choose(pairs, now),
            self._pending.choose(pending, now),
        )
        self.cpu_seconds += thread_time() - began
        return chosen

    def write(self, numbers: Numbers, totals: Totals, left_out: LeftOut, rows: Rows) -> bytes:
        """In a thread."""
        # Not before the first scrape: Prometheus' library loads slowly, and many brokers are never scraped.
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        from kumquat.gateway.metrics.families import BrokerCollector

        began = thread_time()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BrokerCollector(numbers, totals, left_out))
        ProcessCollector(registry=registry)
        lines = subject_lines(
            rows.subjects, numbers.node_id, numbers.log.messages_written, rows.pending
        )
        lines += pair_lines(rows.pairs, rows.members)
        text = generate_latest(registry) + "".join(lines).encode()
        self.cpu_seconds += thread_time() - began
        return text


async def render(broker: Broker) -> bytes:
    """The whole text; see CONTENT_TYPE."""
    # Loaded by now: see process/late_admin.py.
    from kumquat.gateway.metrics.families import LeftOut

    metrics, in_thread = broker.metrics, trio.to_thread.run_sync
    async with metrics.lock:
        numbers, on_loop = await take(broker, metrics.cpu_seconds)
        walk = Walk(broker)
        subjects, pairs = await walk.count_subjects(), await walk.count_pairs()
        pending = dict(broker.delay.pending_by_subject)
        chosen = await in_thread(metrics.choose, subjects, pairs, pending, trio.current_time())
        rows = Rows(
            await walk.subject_rows(chosen.subjects),
            await walk.pair_rows(chosen.pairs),
            await walk.member_rows(chosen.pairs, metrics.max_groups),
            await walk.names({subject_id: pending[subject_id] for subject_id in chosen.pending}),
        )
        left_out = LeftOut(
            len(subjects) - len(chosen.subjects),
            len(pairs) - len(chosen.pairs),
            len(pending) - len(chosen.pending),
        )
        text = await in_thread(metrics.write, numbers, walk.totals, left_out, rows)
        metrics.cpu_seconds += on_loop + walk.cpu
    return text
