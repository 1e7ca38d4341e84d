"""A mixed life of a log, drawn from a seed: everything that can touch the disk, in any order.

Each action stands for something that happens to a broker. Idempotent producers keep their own
count, as clients do: `Producer` knows the last batch that was acked to it, which a log opened
again must recognise.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kumquat.core.logs.tests.batches import batch, count_of
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.records.batch import read_head

SIZES = (1, 40, 300, 900, 3000)


@dataclass
class Producer:
    """An idempotent client with one batch under way at a time."""

    producer_id: int
    next_number: dict[bytes, int] = field(default_factory=dict)
    under_way: dict[bytes, bytearray] = field(default_factory=dict)
    """By topic id: a batch that was refused or not answered, and is sent again until it is."""
    acked: dict[bytes, tuple[bytearray, int]] = field(default_factory=dict)
    """By topic id: the last acked batch and its place."""


class Scenario:
    def __init__(self, seed: int, driver: Driver | None = None) -> None:
        self.rng = Random(seed)
        self.driver = driver or Driver(total_bytes=30_000)
        self.producers: list[Producer] = []
        self._named = 0
        self.actions: list[tuple[int, Callable[[], object]]] = [
            (12, self.append),
            (6, self.append_burst),
            (6, self.append_idempotent),
            (12, self.driver.sync),
            (3, self.append_during_sync),
            (9, self.preamble),
            (5, self.driver.seal),
            (4, self.driver.retire),
            (2, self.create),
            (1, self.delete),
            (2, self.raise_earliest),
            (1, lambda: self.driver.log.roll_when_ready()),
            (2, self.take_producer_ids),
            (1, self.restart),
            (1, self.stop_and_start),
        ]

    def run(self, count: int) -> None:
        self.create()
        self.create()
        self.take_producer_ids()
        weights = [weight for weight, _ in self.actions]
        for _, action in self.rng.choices(self.actions, weights, k=count):
            self.act(action)
        self.finish()

    def finish(self) -> None:
        self.driver.settle()

    def act(self, action: Callable[[], object]) -> None:
        action()

    def preamble(self) -> None:
        self.driver.preamble(self.rng.randrange(1, 6))

    def _name(self) -> str:
        return self.rng.choice(sorted(self.driver.log.state.subjects.by_name))

    def _sizes(self) -> list[int]:
        return [self.rng.choice(SIZES) for _ in range(self.rng.choice((1, 1, 2, 3)))]

    def append(self) -> None:
        self.driver.append(self._name(), *self._sizes())

    def append_burst(self) -> None:
        for _ in range(self.rng.randrange(2, 6)):
            self.driver.stage(self._name(), *self._sizes())
        self.driver.write()

    def append_during_sync(self) -> None:
        job = self.driver.log.begin_sync()
        try:
            self.append_burst()
        finally:
            if job is not None:
                self.driver.run_job(job)

    def append_idempotent(self) -> None:
        if not self.producers:
            return
        producer, name = self.rng.choice(self.producers), self._name()
        topic_id = self.driver.subject(name).topic_id
        if topic_id not in producer.under_way:
            producer.under_way[topic_id] = self._next_batch(producer, topic_id)
        sent = producer.under_way[topic_id]
        appended = self.driver.stage_batch(name, bytearray(sent))
        self.driver.write()

        def acked() -> None:
            producer.acked[topic_id] = (sent, appended.base_sequence)
            producer.next_number[topic_id] = read_head(sent).base_sequence + count_of(sent)
            producer.under_way.pop(topic_id, None)

        self.driver.when_synced(acked, appended.end)

    def _next_batch(self, producer: Producer, topic_id: bytes) -> bytearray:
        number = producer.next_number.get(topic_id, 0)
        return batch(
            *(bytes([number % 256]) * size for size in self._sizes()),
            producer_id=producer.producer_id,
            epoch=0,
            first=number,
        )

    def create(self) -> None:
        self._named += 1
        self.driver.create(f"subject-{self._named}")

    def delete(self) -> None:
        if len(self.driver.log.state.subjects) > 1:
            self.driver.delete(self._name())

    def raise_earliest(self) -> None:
        subject = self.driver.subject(self._name())
        to = self.rng.randint(subject.earliest, subject.readable_end)
        self.driver.raise_earliest(subject.name, to)

    def take_producer_ids(self) -> None:
        first = self.driver.take_producer_ids()
        self.driver.when_synced(lambda: self.producers.append(Producer(first)))

    def restart(self) -> None:
        """The process is killed: what it wrote stays, and what it held in memory is gone."""
        self.driver.start()
        self.driver.look()

    def stop_and_start(self) -> None:
        self.driver.log.close()
        self.restart()


def check_recovery(scenario: Scenario, opened: Driver) -> None:
    """Asserts that a log, opened on what a cut left of the scenario's disk, keeps the promises."""
    alarms = [line for line in opened.errors if ".index" not in line]
    assert not alarms, f"taken for corruption: {alarms}"
    opened.check()
    for producer in scenario.producers:
        for topic_id, (data, base) in producer.acked.items():
            subject = opened.log.state.subjects.by_topic_id.get(topic_id)
            if subject is not None:
                before = subject.next_sequence
                repeated = opened.log.append_nowait(subject, memoryview(bytearray(data)))
                assert repeated.base_sequence == base, "a repetition was not recognised"
                assert subject.next_sequence == before
                assert repeated.end <= opened.log.synced_end


def check_goes_on(opened: Driver) -> None:
    """Asserts that the log can be written to, and keeps that as well over the next start."""
    for name in sorted(opened.log.state.subjects.by_name):
        subject = opened.subject(name)
        if subject.topic_id in opened.promises.subjects:
            base = subject.next_sequence
            assert opened.append(name, 100, 10).base_sequence == base
    opened.settle()
    opened.check()
    opened.start()
    opened.check()
