"""Raw frames with delay headers: what is refused and why, retries of idempotent batches, order, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka.protocol.producer import InitProducerIdRequest
from kafka.record import MemoryRecordsBuilder

from compat_tests.delay.stories import (
    Headers,
    Sent,
    after,
    at,
    cancel,
    named,
    now,
    read_confluent,
    up_to,
)
from compat_tests.support import DEADLINE, T0
from compat_tests.wire.connection import (
    Message,
    Wire,
    create_topic,
    fetch,
    fetched,
    list_offsets,
    listed,
    produce,
    produced,
)
from compat_tests.wire.test_wire_records import read

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

pytestmark = pytest.mark.differs("Kafka has no messages for later")
INVALID_RECORD, OUT_OF_ORDER = 87, 45
TWO_YEARS = 2 * 365 * 86_400_000
ZSTD = 4
BAD: dict[str, tuple[Headers, str]] = {
    "negative": ([("qmq-delay-ms", b"-1")], "qmq-delay-ms"),
    "no number": ([("qmq-delay-ms", b"soon")], "qmq-delay-ms"),
    "a fraction": ([("qmq-delay-ms", b"1.5")], "qmq-delay-ms"),
    "empty": ([("qmq-delay-ms", b"")], "qmq-delay-ms"),
    "null": ([("qmq-deliver-at", None)], "qmq-deliver-at"),
    "10^30": ([("qmq-delay-ms", b"1" + b"0" * 30)], "qmq-delay-ms"),
    "beyond two years": (after(TWO_YEARS + 1), "delay.max.ms"),
    "a time beyond two years": (at(now() + TWO_YEARS + 3_600_000), "qmq-deliver-at"),
    "given twice": (after(1) + after(1), "qmq-delay-ms"),
    "both given": (after(1) + at(now()), "qmq-deliver-at"),
    "an id without a time": (named("a"), "qmq-delay-id"),
    "an empty id": (after(1) + named(""), "qmq-delay-id"),
    "an id that is not UTF-8": ([*after(1), ("qmq-delay-id", b"\xff")], "qmq-delay-id"),
    "a long id": (after(1) + named("i" * 256), "qmq-delay-id"),
    "cancelling nothing": (cancel(""), "qmq-delay-cancel"),
    "an id and a cancel": (after(1) + named("a") + cancel("b"), "qmq-delay-id"),
}


def batch(
    sent: list[Sent], *, codec: int = 0, producer: tuple[int, int, int] | None = None
) -> bytes:
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 24)
    for each in sent:
        builder.append(each.timestamp, each.key, each.value, each.headers)
    if producer is not None:
        builder.set_producer_state(*producer, is_transactional=False)
    builder.close()
    return bytes(builder.buffer())


def put(wire: Wire, topic: str, records: bytes) -> tuple[int, int]:
    """Error code and base offset."""
    answer = produced(wire.call(produce(topic, records), 9))
    return answer.error_code, answer.base_offset


def end_of(wire: Wire, topic: str) -> int:
    return listed(wire.call(list_offsets(topic, -1), 7))[2]


def new_producer(wire: Wire) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = wire.call(request, 2)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("codec", [0, ZSTD])
@pytest.mark.parametrize("case", sorted(BAD))
def test_a_bad_header_refuses_the_batch_and_nothing_of_it_is_stored(
    bootstrap: str, wire: Wire, topic: str, case: str, codec: int
) -> None:
    headers, tells = BAD[case]
    sent = [
        Sent(b"plain" * 100),
        Sent(b"good", after(0)),
        Sent(b"bad", headers),
        Sent(b"x", after(0)),
    ]
    answer = produced(wire.call(produce(topic, batch(sent, codec=codec)), 9))
    assert answer.error_code == INVALID_RECORD
    assert "record 2" in answer.error_message
    assert tells in answer.error_message
    assert end_of(wire, topic) == 0
    assert put(wire, topic, batch([Sent(b"last", after(100))])) == (0, -1)
    assert up_to(bootstrap, topic, b"last") == [], "the good record of that batch was scheduled"


def test_the_longest_delay_is_taken(wire: Wire, topic: str) -> None:
    assert put(wire, topic, batch([Sent(b"x", after(TWO_YEARS))])) == (0, -1)
    assert put(wire, topic, batch([Sent(b"x", at(now() + TWO_YEARS))])) == (0, -1)


def test_a_garbled_record_beside_a_delayed_one_is_refused(wire: Wire, topic: str) -> None:
    from compat_tests.wire.test_wire_records import sealed

    records = bytearray(batch([Sent(b"abc", after(0)), Sent(b"def", after(0))]))
    records[61] += 2
    assert put(wire, topic, bytes(sealed(records)))[0] == INVALID_RECORD
    assert end_of(wire, topic) == 0


def test_answers_and_offsets_keep_the_order_of_the_requests(
    bootstrap: str, wire: Wire, topic: str
) -> None:
    """A large compressed batch is opened in a thread; what was sent behind it waits."""
    noise = bytes(range(256)) * 200
    base, expected = 0, []
    for number in range(20):
        if number % 3 == 0:
            values = [noise + b"%d" % number, b"later", b"plain"]
            records = batch(
                [Sent(values[0]), Sent(values[1], after(0)), Sent(values[2])], codec=ZSTD
            )
            expected.append((base, 3))
        else:
            records = batch([Sent(b"small %d" % number)])
            expected.append((base, 1))
        base += expected[-1][1]
        wire.send(produce(topic, records), 9)
    answers = [produced(wire.receive()) for _ in expected]
    assert {answer.error_code for answer in answers} == {0}
    offsets = [answer.base_offset for answer in answers]
    assert offsets == sorted(offsets)
    got = read_confluent(bootstrap, topic, sum(count for _, count in expected))
    smalls = [read.value for read in got if (read.value or b"").startswith(b"small")]
    assert smalls == [b"small %d" % number for number in range(20) if number % 3]
    assert sum(read.value == b"later" for read in got) == 7


@pytest.mark.kumquat(max_decompressed_bytes=1 << 20)
def test_a_bomb_is_refused(kumquat: TestBroker) -> None:
    with Wire(kumquat.bootstrap) as wire:
        create_topic(wire, "bomb")
        sent = [Sent(bytes(3 << 20), after(0))]
        for codec in (1, 2, 3, 4):
            assert put(wire, "bomb", batch(sent, codec=codec))[0] == INVALID_RECORD
        assert put(wire, "bomb", batch([Sent(b"good")])) == (0, 0)


# Retries


def three(producer: tuple[int, int]) -> list[bytes]:
    """A delayed batch, a mixed and a plain one, as an idempotent producer numbers them."""
    return [
        batch([Sent(b"0", after(0)), Sent(b"1", after(50))], producer=(*producer, 0)),
        batch([Sent(b"2"), Sent(b"3", after(0)), Sent(b"4")], producer=(*producer, 2)),
        batch([Sent(b"5"), Sent(b"6")], producer=(*producer, 5)),
    ]


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    """All values up to the one that is scheduled now as the last, in order."""
    with Wire(bootstrap) as wire:
        assert put(wire, topic, batch([Sent(b"last", after(200))])) == (0, -1)
    return sorted((read.value for read in up_to(bootstrap, topic, b"last")), key=str)


def test_retried_batches_schedule_once(bootstrap: str, wire: Wire, topic: str) -> None:
    batches = three(new_producer(wire))
    answers = [put(wire, topic, records) for records in batches]
    assert [code for code, _ in answers] == [0, 0, 0]
    assert answers[0][1] == -1
    assert [put(wire, topic, records) for records in batches] == answers
    assert [put(wire, topic, records) for records in reversed(batches)] == answers[::-1]
    assert values_of(bootstrap, topic) == [b"%d" % number for number in range(7)]


def test_a_batch_from_the_middle_is_out_of_order(wire: Wire, topic: str) -> None:
    producer = new_producer(wire)
    first, _, third = three(producer)
    assert put(wire, topic, first) == (0, -1)
    assert put(wire, topic, third)[0] == OUT_OF_ORDER
    gap = batch([Sent(b"x", after(0))], producer=(*producer, 7))
    assert put(wire, topic, gap)[0] == OUT_OF_ORDER


@pytest.mark.parametrize("known", [1, 2, 3])
def test_retries_after_a_crash_schedule_once(kumquat: TestBroker, known: int) -> None:
    """The broker had taken the first so many when it died; the producer sends all of them again."""
    with Wire(kumquat.bootstrap) as wire:
        create_topic(wire, "orders")
        batches = three(new_producer(wire))
        answers = [put(wire, "orders", records) for records in batches[:known]]
    kumquat.kill()
    kumquat.start()
    with Wire(kumquat.bootstrap) as wire:
        again = [put(wire, "orders", records) for records in batches]
        assert again[:known] == answers
        assert {code for code, _ in again} == {0}
    assert values_of(kumquat.bootstrap, "orders") == [b"%d" % number for number in range(7)]


# Readers


def test_a_reader_that_waits_is_woken_by_a_delivery(wire: Wire, bootstrap: str, topic: str) -> None:
    with Wire(bootstrap) as other:
        assert put(other, topic, batch([Sent(b"later", after(300))])) == (0, -1)
    answer = wire.call(fetch(topic, 0, max_wait_ms=int(DEADLINE * 500)), 11)
    assert [value for _, value in read(answer)] == [b"later"]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_the_timestamp_is_the_time_of_delivery(
    bootstrap: str, wire: Wire, names: object, kind: str
) -> None:
    assert callable(names)
    topic = names()
    create_topic(wire, topic, configs={"message.timestamp.type": kind})
    sent = [Sent(b"plain", timestamp=now()), Sent(b"later", after(200), timestamp=T0)]
    assert put(wire, topic, batch(sent)) == (0, 0)
    plain, later = read_confluent(bootstrap, topic, 2)
    assert plain.timestamp <= later.timestamp
    assert later.due <= later.timestamp <= now()
    code, timestamp, offset = listed(wire.call(list_offsets(topic, later.timestamp), 7))
    assert (code, timestamp, offset) == (0, later.timestamp, later.offset)


def test_the_answer_to_a_mixed_batch_covers_what_is_parked(wire: Wire, topic: str) -> None:
    """The high watermark passes the holes: nobody waits for them."""
    assert put(wire, topic, batch([Sent(b"a"), Sent(b"b", after(3_600_000))])) == (0, 0)
    answer: Message = wire.call(fetch(topic, 0), 11)
    assert fetched(answer).high_watermark == 2
    assert put(wire, topic, batch([Sent(b"c")])) == (0, 2)
