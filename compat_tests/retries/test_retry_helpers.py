"""kumquat.consumer with each client: a failed message that is lost, comes early, or takes others along."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from compat_tests.groups.stories import configure, fill
from compat_tests.retries.workers import WORKERS, Got, Worker
from compat_tests.support import DEADLINE
from kumquat.consumer import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.differs("Kafka has no retries for consumer groups")


@pytest.fixture(params=sorted(WORKERS))
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def hire(bootstrap: str, group: str, topic: str, client: str) -> Iterator[Callable[..., Worker]]:
    hired: list[Worker] = []

    def make(**settings: Any) -> Worker:
        worker: Worker = WORKERS[client](bootstrap, group, topic, **settings)
        hired.append(worker)
        return worker

    yield make
    for worker in hired:
        worker.close()


def work(
    workers: list[Worker], handle: Callable[[Worker, Got], None], until: Callable[[list[Got]], bool]
) -> list[Got]:
    """Have the workers handle and commit what comes, in turns, until all is there."""
    seen: list[Got] = []
    deadline = time.monotonic() + DEADLINE
    while not until(seen):
        assert time.monotonic() < deadline, [(each.value, each.attempt) for each in seen]
        for worker in workers:
            found = worker.take(0.1)
            for each in found:
                handle(worker, each)
            seen += found
            if found:
                worker.commit()
    return seen


def staff(hire: Callable[..., Worker], count: int) -> list[Worker]:
    """So many workers, all of which have joined: what is read from here on is not given back."""
    workers = [hire() for _ in range(count)]
    deadline = time.monotonic() + DEADLINE
    while not all(worker.is_member() for worker in workers):
        assert time.monotonic() < deadline, "not all were given the topic"
        for worker in workers:
            assert not worker.take(0.1)
    return workers


@pytest.mark.parametrize(("mode", "members"), [("auto", 1), ("shared", 1), ("shared", 2)])
def test_a_message_comes_again_after_its_delay_and_alone(
    bootstrap: str,
    topic: str,
    group: str,
    hire: Callable[..., Worker],
    mode: str,
    members: int,
) -> None:
    configure(bootstrap, group, **{"consume.mode": mode})
    workers = staff(hire, members)
    values = fill(bootstrap, topic, 50)
    asked: list[float] = []

    def handle(worker: Worker, each: Got) -> None:
        if each.value == "7" and each.attempt < 3:
            asked.append(time.time())
            delay = 1.2 if each.attempt == 1 else timedelta(seconds=0.3)
            worker.retry(each, after=delay, reason=ValueError("not now"))

    seen = work(workers, handle, lambda seen: any(each.attempt == 3 for each in seen))
    again = [each for each in seen if each.value == "7"]
    assert [each.attempt for each in again] == [1, 2, 3]
    assert again[1].at >= asked[0] + 1.2
    assert again[2].at >= asked[1] + 0.3
    others = [each.value for each in seen if each.value != "7"]
    assert sorted(others, key=int) == [value for value in values if value != "7"]


def test_a_group_that_becomes_exclusive_reads_on_while_retries_wait_and_gets_what_is_due(
    bootstrap: str, topic: str, group: str, hire: Callable[..., Worker]
) -> None:
    workers = staff(hire, 1)
    first = fill(bootstrap, topic, 20)
    due: list[float] = []

    def handle(worker: Worker, each: Got) -> None:
        if each.value == "7":
            worker.retry(each, after=timedelta(hours=1))
        elif each.value == "8" and each.attempt == 1:
            due.append(time.time() + 5)
            worker.retry(each, after=5)

    seen = work(workers, handle, lambda seen: len(seen) == len(first))
    configure(bootstrap, group, **{"consume.mode": "exclusive"})
    more = fill(bootstrap, topic, 10, first=20)
    seen += work(workers, handle, lambda seen: len(seen) == len(more) + 1)
    last = fill(bootstrap, topic, 10, first=30)
    seen += work(workers, handle, lambda seen: len(seen) == len(last))
    (again,) = [each for each in seen if each.attempt == 2]
    assert again.value == "8"
    assert again.at >= due[0]
    assert sorted(each.value for each in seen) == sorted([*first, *more, *last, "8"])


def test_without_a_delay_the_groups_backoff_counts(
    bootstrap: str, topic: str, group: str, hire: Callable[..., Worker]
) -> None:
    configure(bootstrap, group, **{"retry.backoff.ms": "700", "retry.backoff.multiplier": "1"})
    workers = staff(hire, 1)
    fill(bootstrap, topic, 5)
    asked: list[float] = []

    def handle(worker: Worker, each: Got) -> None:
        if each.value == "3" and each.attempt == 1:
            asked.append(time.time())
            worker.retry(each)

    seen = work(workers, handle, lambda seen: any(each.attempt == 2 for each in seen))
    (again,) = [each for each in seen if each.attempt == 2]
    assert again.value == "3"
    assert again.at >= asked[0] + 0.7


def dead_letters(bootstrap: str, topic: str, count: int) -> list[Any]:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 200,
        }
    )
    reader.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} dead letters came"
            found += [m for m in reader.consume(count, 0.2) if m.error() is None]
    finally:
        reader.close()
    return found


@pytest.mark.parametrize("mode", ["auto", "exclusive", "shared"])
def test_a_rejected_message_becomes_a_dead_letter_with_its_reason(
    bootstrap: str, topic: str, group: str, hire: Callable[..., Worker], mode: str
) -> None:
    configure(
        bootstrap,
        group,
        **{"consume.mode": mode, "errors.deadletterqueue.topic.name": f"{topic}.dead"},
    )
    worker = hire()
    values = fill(bootstrap, topic, 10)

    def handle(worker: Worker, each: Got) -> None:
        if each.value == "4":
            worker.reject(each, KeyError("no customer ü"))

    seen = work([worker], handle, lambda seen: len(seen) >= len(values))
    assert [each.value for each in seen] == values
    (dead,) = dead_letters(bootstrap, f"{topic}.dead", 1)
    assert dead.value() == b"4"
    headers = {name: value.decode() for name, value in dead.headers()}
    assert headers["qmq-dead-subject"] == topic
    assert headers["qmq-dead-sequence"] == "4"
    assert headers["qmq-dead-group"] == group
    assert headers["qmq-dead-attempts"] == "1"
    assert headers["qmq-dead-reason"] == "rejected"
    assert headers["qmq-dead-text"] == "KeyError: 'no customer ü'"


def test_what_the_broker_refuses_is_raised_with_its_reason(
    bootstrap: str, topic: str, client: str, hire: Callable[..., Worker]
) -> None:
    worker = hire()
    fill(bootstrap, topic, 3)
    seen = work([worker], lambda _, __: None, lambda seen: len(seen) >= 3)
    shown = "is acked already" if client == "kafka-python" else "the broker's log says it"
    with pytest.raises(Refused, match=shown):
        worker.retry(seen[1])
    for delay in (3 * 365 * 86_400, -1):
        with pytest.raises(Refused, match="header qmq-retry-after-ms is "):
            worker.retry(seen[1], after=delay)
    with pytest.raises(Refused, match="after is inf"):
        worker.retry(seen[1], after=float("inf"))


def test_a_refusal_that_ends_the_producer(
    bootstrap: str, topic: str, hire: Callable[..., Worker]
) -> None:
    worker = hire()
    fill(bootstrap, topic, 3)
    first = work([worker], lambda _, __: None, lambda seen: len(seen) >= 3)
    with pytest.raises(Refused):
        worker.retry(first[1])
    fill(bootstrap, topic, 3)

    def handle(worker: Worker, each: Got) -> None:
        if each.value == "1" and each.attempt == 1:
            worker.retry(each, after=0)

    work([worker], handle, lambda seen: any(each.attempt == 2 for each in seen))


@pytest.mark.parametrize("client", ["kafka-python"], indirect=True)
@pytest.mark.parametrize(
    ("settings", "text"),
    [({"enable_idempotence": True}, "enable_idempotence=False"), ({"acks": 0}, "acks=0")],
)
def test_a_producer_that_the_first_refusal_would_end_or_that_hears_of_none(
    bootstrap: str, topic: str, hire: Callable[..., Worker], settings: dict[str, Any], text: str
) -> None:
    worker = hire(**settings)
    fill(bootstrap, topic, 1)
    (only,) = work([worker], lambda _, __: None, lambda seen: len(seen) >= 1)
    with pytest.raises(Refused, match=text):
        worker.retry(only)


@pytest.mark.parametrize("client", ["aiokafka", "kafka-python"], indirect=True)
@pytest.mark.parametrize(
    "serializer", [lambda v: json.dumps(v).encode(), lambda v: v.encode()], ids=["json", "text"]
)
@pytest.mark.parametrize("keys", [False, True], ids=["values", "keys-too"])
def test_a_producer_with_a_serializer_can_be_used(
    bootstrap: str, topic: str, hire: Callable[..., Worker], serializer: Any, keys: bool
) -> None:
    worker = hire(
        value_serializer=serializer, **({"key_serializer": lambda k: k.encode()} if keys else {})
    )
    fill(bootstrap, topic, 3)

    def handle(worker: Worker, each: Got) -> None:
        if each.value == "1" and each.attempt == 1:
            worker.retry(each, after=0)

    work([worker], handle, lambda seen: any(each.attempt == 2 for each in seen))
