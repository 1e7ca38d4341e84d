"""The delay service inside a real broker: started, asked, told of deletions, stopped, and found again.

What it does is tried in core/wheel, and with every client in compat_tests; here is whether it is wired in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kumquat.gateway.cli.endpoint import ask
from kumquat.gateway.testing.broker import TestBroker, broker

if TYPE_CHECKING:
    from collections.abc import Mapping

HOUR_MS = 3_600_000
DEADLINE = 90.0


def send(b: TestBroker, topic: str, value: bytes, **headers: object) -> int:
    """Writes a message; its offset."""
    named: list[tuple[str, str | bytes | None]] = [
        (name.replace("_", "-"), str(text).encode()) for name, text in headers.items()
    ]
    offsets: list[int] = []

    def delivered(error: Any, sent: Message) -> None:
        assert error is None, error
        offsets.append(sent.offset() or 0)

    producer = Producer({"bootstrap.servers": b.bootstrap})
    producer.produce(topic, value, key=b"k", headers=named, on_delivery=delivered)
    assert producer.flush(DEADLINE) == 0, told(b)
    return offsets[0]


def read(b: TestBroker, topic: str, count: int) -> list[Message]:
    """The first messages of a topic, as soon as they are there."""
    consumer = Consumer({"bootstrap.servers": b.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = consumer.consume(count, timeout=DEADLINE)
    finally:
        consumer.close()
    assert len(found) == count, f"{len(found)} of {count} came: {told(b)}"
    return found


def told(b: TestBroker) -> str:
    """What the broker says of itself, for a test that fails."""
    return f"{get(b, '/statistics')}\n{b.log_text()[-4000:]}"


def get(b: TestBroker, path: str, **values: str) -> Mapping[str, Any]:
    status, answer = ask(b.admin, "GET", path, values)
    assert status == 200, answer
    return answer


def post(b: TestBroker, path: str, **values: str) -> tuple[int, str]:
    status, answer = ask(b.admin, "POST", path, values)
    return status, answer["status"]


@pytest.fixture(scope="module")
def shared() -> Any:
    with broker() as b:
        yield b


def test_a_delayed_message_arrives_when_it_is_due(shared: TestBroker) -> None:
    send(shared, "soon", b"now")
    before = time.time_ns() // 1_000_000
    send(shared, "soon", b"later", qmq_delay_ms=500, other="kept")
    first, second = read(shared, "soon", 2)
    assert (first.value(), second.value(), second.key()) == (b"now", b"later", b"k")
    assert (first.offset(), second.offset()) == (0, 1)
    headers = dict(second.headers() or [])
    assert set(headers) == {"other", "qmq-due-ms", "qmq-created-ms"}
    assert headers["other"] == b"kept"
    due = int(headers["qmq-due-ms"] or b"")
    assert before + 500 <= due <= second.timestamp()[1]


def test_what_is_pending_can_be_counted_listed_cancelled_and_moved(shared: TestBroker) -> None:
    for name in ("a", "b", "c"):
        send(shared, "orders", name.encode(), qmq_delay_ms=HOUR_MS, qmq_delay_id=name)
    assert get(shared, "/delay/count", subject="orders") == {"count": 3}
    items = get(shared, "/delay/list", subject="orders")["items"]
    assert [(item["id"], item["key"]) for item in items] == [("a", "k"), ("b", "k"), ("c", "k")]
    assert post(shared, "/delay/cancel", subject="orders", id="a") == (200, "cancelled")
    assert get(shared, "/delay/show", subject="orders", id="a")["status"] == "cancelled"
    assert post(shared, "/delay/move", subject="orders", id="b", due="2000-01-01") == (200, "moved")
    schedule_id = str(items[2]["schedule_id"])
    assert post(shared, "/delay/cancel", subject="orders", schedule_id=schedule_id) == (
        200,
        "cancelled",
    )
    (moved,) = read(shared, "orders", 1)
    assert moved.value() == b"b"
    assert post(shared, "/delay/cancel", subject="orders", id="b") == (409, "delivered")
    assert get(shared, "/delay/count", subject="orders") == {"count": 0}


def test_the_brokers_limits_reach_the_service() -> None:
    with broker(delay_max_ms=1000) as b:
        producer = Producer({"bootstrap.servers": b.bootstrap})
        errors: list[str] = []
        producer.produce(
            "t",
            b"x",
            headers=[("qmq-delay-ms", b"1001")],
            on_delivery=lambda error, _: errors.append(str(error)),
        )
        assert producer.flush(DEADLINE) == 0, told(b)
        assert "INVALID_RECORD" in errors[0], errors
        send(b, "t", b"x", qmq_delay_ms=1000)
        assert [m.value() for m in read(b, "t", 1)] == [b"x"]


@pytest.mark.kumquat(delay_enabled=False)
def test_where_delay_is_off_its_headers_are_like_any_other(kumquat: TestBroker) -> None:
    assert send(kumquat, "t", b"x", qmq_delay_ms=HOUR_MS) == 0
    (message,) = read(kumquat, "t", 1)
    assert message.headers() == [("qmq-delay-ms", str(HOUR_MS).encode())]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_what_is_pending_outlives_the_broker(kumquat: TestBroker, end: str) -> None:
    send(kumquat, "t", b"x", qmq_delay_ms=HOUR_MS, qmq_delay_id="x")
    send(kumquat, "t", b"y", qmq_delay_ms=HOUR_MS)
    getattr(kumquat, end)()
    kumquat.start()
    assert get(kumquat, "/delay/count", subject="t") == {"count": 2}
    assert post(kumquat, "/delay/move", subject="t", id="x", due="2000-01-01") == (200, "moved")
    assert [m.value() for m in read(kumquat, "t", 1)] == [b"x"]


def test_a_deleted_topic_drops_what_was_pending_and_says_how_many(kumquat: TestBroker) -> None:
    send(kumquat, "t", b"x", qmq_delay_ms=HOUR_MS)
    send(kumquat, "t", b"y", qmq_delay_ms=HOUR_MS)
    admin = AdminClient({"bootstrap.servers": kumquat.bootstrap})
    (deleted,) = admin.delete_topics(["t"]).values()
    deleted.result(DEADLINE)
    kumquat.wait_for_log("topic t deleted, with 2 messages that were pending")
    assert get(kumquat, "/delay/count") == {"count": 0}
    (created,) = admin.create_topics([NewTopic("t")]).values()
    created.result(DEADLINE)
    assert get(kumquat, "/delay/count", subject="t") == {"count": 0}


def test_statistics_tell_of_every_part(shared: TestBroker) -> None:
    send(shared, "counted", b"x", qmq_delay_ms=HOUR_MS)
    statistics = get(shared, "/statistics")
    assert statistics["delay"]["pending"] >= 1
    assert statistics["delay"]["scheduled"] >= 1
    assert set(statistics["delay"]["lateness"]) >= {"p50", "p99", "p999", "max"}
    assert statistics["log"]["subjects"] >= 1
    assert statistics["groups"]["fenced"] is False
