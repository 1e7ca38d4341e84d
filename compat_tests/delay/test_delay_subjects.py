"""Messages for later and the life of their subject: deletion, configs, retention, and restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.delay.stories import (
    Sent,
    after,
    assert_not_early,
    at,
    now,
    read_confluent,
    send_confluent,
    up_to,
)
from compat_tests.support import eventually
from compat_tests.wire.connection import Wire, create_topic, delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from kumquat.testing import TestBroker

pytestmark = pytest.mark.differs("Kafka has no messages for later")
HOUR = 3_600_000


def test_a_subject_recreated_does_not_get_what_its_namesake_had(
    bootstrap: str, wire: Wire, topic: str
) -> None:
    due = now() + 1500
    send_confluent(bootstrap, topic, [Sent(b"old", at(due)) for _ in range(10)])
    delete_topic(wire, topic)
    create_topic(wire, topic)
    send_confluent(bootstrap, topic, [Sent(b"last", at(max(due, now()) + 1))])
    assert up_to(bootstrap, topic, b"last") == []


def test_where_it_is_switched_off_the_headers_are_like_any_others(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(**{"delay.enabled": "false"})
    sent = [Sent(b"x", after(HOUR)), Sent(b"y", [("qmq-delay-ms", b"soon")])]
    assert send_confluent(bootstrap, topic, sent) == [0, 1]
    got = read_confluent(bootstrap, topic, 2)
    assert [(read.value, read.headers) for read in got] == [(s.value, s.headers) for s in sent]


@pytest.mark.kumquat(delay_enabled=False)
def test_it_can_be_switched_on_for_one_subject(kumquat: TestBroker) -> None:
    with Wire(kumquat.bootstrap) as wire:
        create_topic(wire, "off")
        create_topic(wire, "on", configs={"delay.enabled": "true"})
    assert send_confluent(kumquat.bootstrap, "off", [Sent(b"x", after(HOUR))]) == [0]
    assert send_confluent(kumquat.bootstrap, "on", [Sent(b"x", after(0))]) == [-1]
    (read,) = read_confluent(kumquat.bootstrap, "on", 1)
    assert_not_early(read)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_what_falls_due_while_the_broker_is_down_comes_when_it_is_back(
    kumquat: TestBroker, how: str
) -> None:
    begin = now()
    sent = [Sent(b"%03d" % n, at(begin + 10 * n)) for n in range(200)]
    send_confluent(kumquat.bootstrap, "orders", sent)
    if how == "kill":
        kumquat.kill()
    else:
        assert kumquat.stop() == 0
    eventually(lambda: now() > begin + 1000, "some are overdue")
    kumquat.start()
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"last", at(max(now(), begin + 2000) + 1))])
    got = up_to(kumquat.bootstrap, "orders", b"last")
    assert [read.value for read in got] == [each.value for each in sent], "in order, each once"
    for read in got:
        assert_not_early(read)


@pytest.mark.kumquat(log_segment_bytes=1 << 20, log_retention_check_interval_ms=100)
def test_retention_takes_the_segments_but_not_what_is_parked_in_them(kumquat: TestBroker) -> None:
    """The log goes on without the segments in which the messages were parked; they come all the same."""
    with Wire(kumquat.bootstrap) as wire:
        create_topic(wire, "filler", configs={"retention.bytes": "1"})
        create_topic(wire, "orders")
    due = now() + 5000
    sent = [Sent(b"%03d" % n * 100, at(due + n), b"key %d" % n) for n in range(300)]
    send_confluent(kumquat.bootstrap, "orders", sent)
    messages = kumquat.directory / "messages"
    first = min(messages.glob("*.log"))

    def gone() -> bool:
        send_confluent(kumquat.bootstrap, "filler", [Sent(b"x" * 500_000)])
        return not first.exists()

    eventually(gone, "the first segment is deleted")
    kumquat.kill()
    kumquat.start()
    got = read_confluent(kumquat.bootstrap, "orders", 300)
    assert [(read.key, read.value) for read in got] == [(each.key, each.value) for each in sent]
    for read in got:
        assert_not_early(read)


def test_a_message_far_away_survives_and_the_near_ones_are_not_held_up(
    kumquat: TestBroker,
) -> None:
    far = [Sent(b"far", after(n * 24 * HOUR)) for n in range(1, 700)]
    send_confluent(kumquat.bootstrap, "orders", far)
    for restart in range(2):
        near = [Sent(b"near %d" % restart, after(100))]
        send_confluent(kumquat.bootstrap, "orders", near)
        got = read_confluent(kumquat.bootstrap, "orders", restart + 1)
        assert got[-1].value == b"near %d" % restart
        kumquat.kill()
        kumquat.start()
