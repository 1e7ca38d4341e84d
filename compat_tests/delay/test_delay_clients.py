"""Messages for later from stock clients: they arrive when they are due, whole, once, and never early.

What only Kumquat does: to Kafka these headers are like any others. Java's stories are in
java/compat/DelayStories.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.delay.stories import (
    READ,
    REFUSED,
    SEND,
    Sent,
    after,
    as_delivered,
    assert_not_early,
    at,
    now,
    read_confluent,
    up_to,
)
from compat_tests.support import CODECS, T0

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.differs("Kafka has no messages for later")
CLIENTS = sorted(SEND)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS)
def test_messages_arrive_whole_when_due_and_in_that_order(
    bootstrap: str, topic: str, client: str, codec: str
) -> None:
    text = b"some text that a codec can shrink " * 20
    sent = [
        Sent(text, [("a", b"1"), *after(600), ("a", b"2")], b"third", T0 + 1),
        Sent(b"", after(200), None, T0 + 2),
        Sent(text, [*after(400), ("empty", b""), ("ü", b"\x00\xff")], b"", T0 + 3),
        Sent(None, after(0), b"gone", T0 + 4),
    ]
    before = now()
    SEND[client](bootstrap, topic, sent, codec=codec)
    answered = now()
    got = READ[client](bootstrap, topic, 4)
    for delay, wanted, read in zip((0, 200, 400, 600), (3, 1, 2, 0), got, strict=True):
        assert as_delivered(sent[wanted], read), read
        assert before + delay <= read.due <= answered + delay
        assert_not_early(read)
    assert [read.offset for read in got] == [0, 1, 2, 3], "nothing was taken for a plain record"
    assert [read.timestamp for read in got] == sorted(read.timestamp for read in got)


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("client", CLIENTS)
def test_in_a_mixed_batch_the_plain_records_keep_their_offsets(
    bootstrap: str, topic: str, client: str, codec: str
) -> None:
    sent = [
        Sent(b"plain 0" * 50),
        Sent(b"later 1" * 50, after(300)),
        Sent(b"plain 2" * 50, [("trace", b"x")]),
        Sent(b"later 3" * 50, after(200)),
        Sent(b"plain 4" * 50),
        Sent(b"later 5" * 50, after(100)),
    ]
    told = SEND[client](bootstrap, topic, sent, codec=codec)
    assert told == [0, 1, 2, 3, 4, 5], "the client reckons from the base offset"
    got = READ[client](bootstrap, topic, 6)
    assert [(read.offset, read.value) for read in got] == [
        (0, sent[0].value),
        (2, sent[2].value),
        (4, sent[4].value),
        (6, sent[5].value),
        (7, sent[3].value),
        (8, sent[1].value),
    ]
    assert [read.headers for read in got[:3]] == [[], [("trace", b"x")], []]
    for read in got[3:]:
        assert_not_early(read)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_batch_that_is_all_for_later_has_no_offset_to_tell(
    bootstrap: str, topic: str, client: str
) -> None:
    """The base offset is -1. librdkafka and aiokafka count up from it for the records behind the first."""
    told = SEND[client](bootstrap, topic, [Sent(b"a", after(0)), Sent(b"b", after(0))])
    assert told[0] == -1
    assert [read.offset for read in READ[client](bootstrap, topic, 2)] == [0, 1]


@pytest.mark.parametrize("client", CLIENTS)
def test_idempotent_producers_schedule_once(bootstrap: str, topic: str, client: str) -> None:
    sent = [
        Sent(b"%d" % number, after(number) if number % 3 else [], timestamp=T0 + number)
        for number in range(200)
    ]
    SEND[client](bootstrap, topic, sent, codec="lz4", idempotent=True)
    SEND[client](bootstrap, topic, [Sent(b"last", after(1000))], idempotent=True)
    values = [read.value for read in up_to(bootstrap, topic, b"last")]
    assert sorted(values, key=lambda value: int(value or b"")) == [each.value for each in sent]


@pytest.mark.parametrize("acks", ["0", "1"])
@pytest.mark.parametrize("client", CLIENTS)
def test_less_acks_schedule_too(bootstrap: str, topic: str, client: str, acks: str) -> None:
    SEND[client](bootstrap, topic, [Sent(b"plain"), Sent(b"later", after(100))], acks=acks)
    got = read_confluent(bootstrap, topic, 2)
    assert [(read.offset, read.value) for read in got] == [(0, b"plain"), (2, b"later")]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_time_that_is_past_is_now(bootstrap: str, topic: str, client: str) -> None:
    before = now()
    SEND[client](bootstrap, topic, [Sent(b"zero", at(0)), Sent(b"past", at(before - 3_600_000))])
    for read in READ[client](bootstrap, topic, 2):
        assert read.due >= before, "the time at which it was scheduled"


def test_a_time_in_the_future_is_kept_to_the_millisecond(bootstrap: str, topic: str) -> None:
    first = now() + 500
    whens = [first + step for step in (7, 3, 0, 250, 4)]
    SEND["confluent"](bootstrap, topic, [Sent(b"%d" % when, at(when)) for when in whens])
    got = read_confluent(bootstrap, topic, len(whens))
    assert [read.value for read in got] == [b"%d" % when for when in sorted(whens)]
    assert [read.due for read in got] == sorted(whens)
    for read in got:
        assert_not_early(read)


def test_due_in_the_same_instant_they_come_as_they_were_scheduled(
    bootstrap: str, topic: str
) -> None:
    when = now() + 1000
    values = [b"%d" % number for number in range(500)]
    for begin in range(0, 500, 100):
        batch = [Sent(value, at(when)) for value in values[begin : begin + 100]]
        SEND["confluent"](bootstrap, topic, batch)
    got = read_confluent(bootstrap, topic, 500)
    assert [read.value for read in got] == values


def test_a_message_that_was_delivered_can_be_copied_without_a_second_delay(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    """A mirror copies records with their headers."""
    source, copy = make_topic(), make_topic()
    SEND["confluent"](bootstrap, source, [Sent(b"x", after(100))])
    (original,) = read_confluent(bootstrap, source, 1)
    told = SEND["confluent"](bootstrap, copy, [Sent(original.value, original.headers)])
    assert told == [0], "it is a plain record there"
    (copied,) = read_confluent(bootstrap, copy, 1)
    assert copied.headers == original.headers


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_told_that_a_bad_header_was_refused(
    bootstrap: str, topic: str, client: str
) -> None:
    sent = [Sent(b"good", after(0)), Sent(b"bad", [("qmq-delay-ms", b"soon")])]
    with pytest.raises(REFUSED):
        SEND[client](bootstrap, topic, sent)
    assert SEND[client](bootstrap, topic, [Sent(b"plain")]) == [0], "nothing of it was stored"
