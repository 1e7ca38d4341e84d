"""An operator with `kumquat groups` and `kumquat dlq`, beside stock consumers: the README's story, done."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from compat_tests.groups.stories import configure
from compat_tests.support import DEADLINE, eventually
from compat_tests.wire.connection import Wire, create_topic
from kumquat.testing import broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.testing import TestBroker

pytestmark = pytest.mark.differs("Kafka has neither dead letters nor these commands")
COMMAND = "from kumquat.gateway.cli.main import main; raise SystemExit(main())"


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as made:
        yield made


def command(on: TestBroker, *arguments: str) -> list[str]:
    return [sys.executable, "-c", COMMAND, *arguments, "--admin", on.admin]


def run(on: TestBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command, as a shell runs it."""
    return subprocess.run(
        command(on, *arguments), capture_output=True, text=True, timeout=DEADLINE, check=False
    )


def told(on: TestBroker, *arguments: str) -> Any:
    done = run(on, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def fill(on: TestBroker, topic: str, count: int) -> None:
    with Wire(on.bootstrap) as wire:
        create_topic(wire, topic)
    producer = Producer({"bootstrap.servers": on.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, key=b"k", headers=[("tenant", b"a")])
    assert producer.flush(DEADLINE) == 0


def consumer(on: TestBroker, group: str, topic: str) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": on.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe([topic])
    return made


def take(reading: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        got = reading.consume(count - len(found), timeout=DEADLINE)
        assert got, f"{len(found)} of {count} came"
        found += got
    return found


def end_of(on: TestBroker, topic: str) -> int:
    reading = Consumer({"bootstrap.servers": on.bootstrap, "group.id": "unused"})
    try:
        return int(reading.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE)[1])
    finally:
        reading.close()


def die(on: TestBroker, group: str, topic: str, count: int) -> None:
    """A consumer gets messages, and goes without a commit."""
    limits = {"delivery.count.limit": "1", "lease.max.records": str(count)}
    configure(on.bootstrap, group, **{"consume.mode": "shared", **limits})
    letters = ("dlq", "list", "--subject", f"{topic}.{group}.dlq", "--limit", "1000")

    def dead() -> bool:
        done = run(on, *letters, "--json")
        return done.returncode == 0 and len(json.loads(done.stdout)["letters"]) == count

    while not dead():
        failing = consumer(on, group, topic)
        assert failing.consume(count, timeout=1.0) is not None
        failing.close()


def test_a_consumer_is_shown_wrongly_or_moved_while_it_reads(running: TestBroker) -> None:
    fill(running, "orders", 20)
    reading = consumer(running, "billing", "orders")
    reading.commit(message=take(reading, 12)[-1], asynchronous=False)
    answer = told(running, "groups", "describe", "billing")
    (member,) = answer["members"]
    assert "rdkafka" in member["software"]
    assert (answer["kind"], answer["state"]) == ("classic", "Stable")
    (subject,) = answer["subjects"]
    assert (subject["mode"], subject["position"], subject["lag"]) == ("exclusive", 12, 8)
    (listed,) = [g for g in told(running, "groups", "list")["groups"] if g["group"] == "billing"]
    assert (listed["members"], listed["lag"]) == (1, 8)
    move = ("groups", "reset", "billing", "--subject", "orders", "--to", "5")
    refused = run(running, *move)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "stop its consumers" in refused.stderr
    reading.close()  # it may not wait for the answer to its leave
    eventually(lambda: "Start its consumers again." in run(running, *move).stdout, "it is moved")
    again = consumer(running, "billing", "orders")
    assert [message.offset() for message in take(again, 15)] == list(range(5, 20))
    again.close()


def test_a_message_that_keeps_failing_is_found_fixed_and_sent_back(running: TestBroker) -> None:
    fill(running, "invoices", 5)
    die(running, "mail", "invoices", 5)
    dead = ("--subject", "invoices.mail.dlq")
    (subject,) = [
        each for each in told(running, "dlq", "list")["subjects"] if each["subject"] == dead[1]
    ]
    assert (subject["open"], subject["attempts"]) == (5, 5)
    shown = run(running, "dlq", "show", *dead, "--sequence", "2")
    assert "reason:          attempts" in shown.stdout
    assert "header:          tenant: a" in shown.stdout
    assert run(running, "dlq", "show", *dead, "--sequence", "2", "--raw").stdout == "2"
    one = told(running, "dlq", "redrive", *dead, "--most", "1")
    assert (one["done"], one["to"]) == (1, {"invoices": 1})
    fixed = consumer(running, "mail", "invoices")
    (message,) = take(fixed, 1)
    assert message.value() == b"0"
    fixed.commit(message=message, asynchronous=False)
    assert told(running, "dlq", "redrive", *dead, "--rate", "100")["done"] == 4
    rest = take(fixed, 4)
    assert [message.value() for message in rest] == [b"1", b"2", b"3", b"4"]
    headers = dict(rest[0].headers() or ())
    assert headers["tenant"] == b"a"
    assert headers["qmq-dead-group"] == b"mail"
    assert "qmq-redriven-ms" in headers
    fixed.commit(message=rest[-1], asynchronous=False)
    fixed.close()
    (group,) = [g for g in told(running, "groups", "list")["groups"] if g["group"] == "mail"]
    assert (group["lag"], group["doomed"], group["waiting"]) == (0, 0, 0)


def test_a_redrive_that_is_killed_and_repeated_sends_twice(kumquat: TestBroker) -> None:
    count = 60
    fill(kumquat, "t", count)
    die(kumquat, "g", "t", count)
    redrive = ("dlq", "redrive", "--subject", "t.g.dlq")
    going = subprocess.Popen(
        command(kumquat, *redrive, "--rate", "2"), stderr=subprocess.PIPE, text=True
    )
    eventually(lambda: end_of(kumquat, "t") > count, "a letter is sent")
    kumquat.kill()
    _, said = going.communicate(timeout=DEADLINE)
    assert going.returncode == 1
    assert "repeat the command to go on" in said
    kumquat.start()
    sent = end_of(kumquat, "t") - count
    assert 0 < sent < count
    assert told(kumquat, *redrive)["done"] == count - sent
    assert end_of(kumquat, "t") == 2 * count
    reading = Consumer({"bootstrap.servers": kumquat.bootstrap, "group.id": "unused"})
    reading.assign([TopicPartition("t", 0, count)])
    values = [int(message.value() or b"") for message in take(reading, count)]
    reading.close()
    assert values == list(range(count))
