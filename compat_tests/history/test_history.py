"""A life that the history tells with a gap, twice, about other messages, or that a client cannot read."""

from __future__ import annotations

import json
import urllib.parse
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from compat_tests.groups.stories import configure
from compat_tests.retries.stories import crew
from compat_tests.support import DEADLINE, SESSION_MS, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.members.fixture import Members
    from kumquat.testing import TestBroker

__all__ = ["crew"]

pytestmark = [
    pytest.mark.differs("Kafka has no such history"),
    pytest.mark.kumquat(group_min_session_timeout_ms=1000),
]
TOPIC, GROUP = "orders", "workers"
LETTERS = f"{TOPIC}.{GROUP}.dlq"
ACTIONS = "__kumquat_actions"
MORTAL: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "max_poll_records": 20}


def make(broker: TestBroker, topic: str, **configs: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs=configs)])
    admin.close()


def send(broker: TestBroker, topic: str, *values: str, **settings: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0, **settings)
    for value in values:
        producer.send(topic, value.encode()).get(DEADLINE)
    producer.close()


def ask(broker: TestBroker, method: str, path: str, **arguments: object) -> dict[str, Any]:
    host = urllib.parse.urlsplit(broker.admin).netloc
    connection = HTTPConnection(host, timeout=DEADLINE)
    try:
        if method == "GET":
            connection.request("GET", f"{path}?{urllib.parse.urlencode(arguments)}")
        else:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(arguments), headers)
        answer = connection.getresponse()
        found: dict[str, Any] = json.load(answer)
        assert answer.status == 200, found
        return found
    finally:
        connection.close()


class Reader:
    """Reads the history with a consumer of kafka-python, from its beginning on."""

    def __init__(self, broker: TestBroker) -> None:
        self.consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
        place = TopicPartition(ACTIONS, 0)
        self.consumer.assign([place])
        self.consumer.seek_to_beginning(place)
        self.events: list[dict[str, Any]] = []

    def until(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """All so far, once there are so many of that kind."""

        def enough() -> bool:
            for records in self.consumer.poll(timeout_ms=200).values():
                for record in records:
                    value = json.loads(record.value)
                    assert record.key == value["subject"].encode()
                    assert record.timestamp == value["at"]
                    self.events.append(value)
            return len([each for each in self.events if each["event"] == event]) >= count

        eventually(enough, f"{count} times {event!r} in {self.events}")
        return self.events


def about(events: list[dict[str, Any]], subject: str, sequence: int) -> list[tuple[Any, ...]]:
    return [
        (each["event"], each.get("attempt"), each.get("reason"))
        for each in events
        if each["subject"] == subject
        and any(first <= sequence < first + count for first, count in each["ranges"])
    ]


@contextmanager
def reading(broker: TestBroker) -> Iterator[Reader]:
    reader = Reader(broker)
    try:
        yield reader
    finally:
        reader.consumer.close()


def test_the_whole_life_of_a_message_as_a_kafka_client_reads_it(
    kumquat: TestBroker, crew: Members
) -> None:
    """Produced, handed to a member that is killed, handed to another one that is killed too: it dies, is
    buried, sent back, and acked by a third."""
    make(kumquat, TOPIC, history="all")
    limits = {"delivery.count.limit": "2", "retry.backoff.ms": "100"}
    configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared", **limits})
    send(kumquat, TOPIC, "a", client_id="shop")
    with reading(kumquat) as reader:
        for end in ("retried", "buried"):
            member = crew("kafka_python-range", GROUP, TOPIC, alone=True, **MORTAL)
            assert [each.value for each in member.take(1)] == ["a"]
            member.kill()
            reader.until(end)
        life = about(reader.events, TOPIC, 0)
        assert life == [
            ("produced", None, None),
            ("pulled", 1, None),
            ("retried", 2, "session"),
            ("pulled", 2, None),
            ("died", None, "attempts"),
            ("buried", None, None),
        ]
        produced = reader.events[0]
        assert produced["ranges"] == [[0, 1]]
        assert produced["producer"] == "shop"
        assert produced["address"].startswith("127.0.0.1:")

        ask(kumquat, "POST", "/dlq/redrive", subject=LETTERS)
        reader.until("redriven")
        assert about(reader.events, LETTERS, 0) == [("redriven", None, None)]
        member = crew("kafka_python-range", GROUP, TOPIC, alone=True, **MORTAL)
        assert [each.value for each in member.take(1)] == ["a"]
        member.do("commit")
        reader.until("acked")
        member.close()
        assert about(reader.events, TOPIC, 1) == [
            ("produced", None, None),
            ("pulled", 1, None),
            ("acked", None, None),
        ]
    trace = ask(kumquat, "GET", "/trace", subject=TOPIC, offset=0)
    assert [each["event"] for each in trace["events"]] == [*(each[0] for each in life), "redriven"]
    assert trace["events"][-1]["offset"] == 1
    assert [(each["group"], each["state"]) for each in trace["groups"]] == [(GROUP, "dead letter")]
    assert [each["subject"] for each in trace["letters"]] == [LETTERS]
    assert ask(kumquat, "GET", "/statistics")["history"]["missed"] == 0


def test_the_history_can_be_listed_and_read_and_not_be_written(kumquat: TestBroker) -> None:
    make(kumquat, TOPIC, history="all")
    send(kumquat, TOPIC, "a")
    with reading(kumquat) as reader:
        reader.until("produced")
    settings = {"group.id": "watchers", "auto.offset.reset": "earliest"}
    watcher = Consumer({"bootstrap.servers": kumquat.bootstrap, **settings})
    watcher.subscribe([ACTIONS])
    (record,) = watcher.consume(1, DEADLINE)
    watcher.close()
    assert record.error() is None
    assert json.loads(record.value() or b"")["event"] == "produced"
    admin = KafkaAdminClient(bootstrap_servers=kumquat.bootstrap)
    (described,) = admin.describe_topics([ACTIONS])
    listed = {topic["name"]: topic["is_internal"] for topic in admin.describe_topics()}
    admin.close()
    assert not described["is_internal"], "Spark would not read it"
    assert listed[ACTIONS]
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": kumquat.bootstrap})
    producer.produce(ACTIONS, b"forged", callback=lambda error, _: refused.append(error))
    assert producer.flush(DEADLINE) == 0
    assert refused[0].code() == KafkaError.TOPIC_EXCEPTION


def test_a_killed_broker_loses_moments_of_the_history_and_no_data(kumquat: TestBroker) -> None:
    make(kumquat, TOPIC, history="all")
    send(kumquat, TOPIC, "a")
    with reading(kumquat) as reader:
        reader.until("produced")
    send(kumquat, TOPIC, "b")
    kumquat.kill()
    kumquat.start()
    send(kumquat, TOPIC, "c")
    with reading(kumquat) as reader:
        eventually(lambda: _ends(reader.until("produced")) == (0, 2), "the first and the last")
    assert ask(kumquat, "GET", "/trace", subject=TOPIC, offset=1)["message"]["size"] == 1


def _ends(events: list[dict[str, Any]]) -> tuple[int, int]:
    told = [each["ranges"][0][0] for each in events if each["event"] == "produced"]
    assert len(told) == len(set(told))
    return min(told), max(told)
