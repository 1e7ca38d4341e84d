"""Raw frames: batches good and bad, idempotence, fetching and looking up offsets."""

from __future__ import annotations

import itertools
import struct
import uuid
from typing import TYPE_CHECKING

import crc32c
import pytest
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.producer import InitProducerIdRequest
from kafka.record import MemoryRecords

from compat_tests.support import T0
from compat_tests.wire.connection import (
    Message,
    Wire,
    batch,
    delete_topic,
    describe_topic,
    fetch,
    fetched,
    list_offsets,
    listed,
    produce,
    produced,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
MAGIC = 16
COUNT = 57


def sealed(records: bytearray) -> bytearray:
    """With the CRC of what it holds now."""
    struct.pack_into(">I", records, CRC, crc32c.crc32c(bytes(records[ATTRIBUTES:])))
    return records


def changed(records: bytearray, position: int, form: str, value: int) -> bytearray:
    struct.pack_into(form, records, position, value)
    return sealed(records)


def read(answer: Message) -> list[tuple[int, bytes]]:
    """Offsets and values of a Fetch answer."""
    found = []
    for each in MemoryRecords(bytes(fetched(answer).records or b"")):
        found += [(record.offset, record.value) for record in each]
    return found


def with_wrong_crc() -> bytearray:
    records = batch(b"x")
    records[-1] ^= 1
    return records


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(with_wrong_crc(), 2, id="wrong CRC"),
        pytest.param(changed(batch(b"x"), COUNT, ">i", 2), 87, id="count too high"),
        pytest.param(changed(batch(b"x", b"y"), LAST_OFFSET_DELTA, ">i", 5), 87, id="wrong delta"),
        pytest.param(batch(b"x") + batch(b"y"), 87, id="two batches"),
        pytest.param(changed(batch(b"x"), ATTRIBUTES, ">h", 0x20), 87, id="control bit"),
        pytest.param(changed(batch(b"x"), MAGIC, ">b", 1), 87, id="magic 1"),
        pytest.param(batch(b"x")[:30], 87, id="cut short"),
        pytest.param(batch(bytes(1_500_000)), 10, id="too large"),
    ],
)
def test_a_bad_batch_is_refused_and_the_connection_lives(
    wire: Wire, topic: str, records: bytearray, code: int
) -> None:
    assert produced(wire.call(produce(topic, records), 9)).error_code == code
    good = produced(wire.call(produce(topic, batch(b"good")), 9))
    assert (good.error_code, good.base_offset) == (0, 0)


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_in_every_version(wire: Wire, topic: str, version: int) -> None:
    for base in (0, 2):
        answer = produced(wire.call(produce(topic, batch(b"a", b"b")), version))
        assert (answer.error_code, answer.base_offset) == (0, base)
        assert answer.log_append_time_ms == -1
        if version >= 5:
            assert answer.log_start_offset == 0


def test_produce_by_topic_id(wire: Wire, topic: str) -> None:
    request = produce(topic, batch(b"a"))
    request.topic_data[0].topic_id = describe_topic(wire, topic).topic_id
    assert produced(wire.call(request, 13)).error_code == 0
    request.topic_data[0].topic_id = uuid.uuid4()
    assert produced(wire.call(request, 13)).error_code == 100


def test_produce_to_what_is_not_there(wire: Wire, topic: str, name: str) -> None:
    assert produced(wire.call(produce(name, batch(b"x")), 9)).error_code == 3
    assert produced(wire.call(produce(topic, batch(b"x"), partition=7), 9)).error_code == 3
    delete_topic(wire, topic)
    assert produced(wire.call(produce(topic, batch(b"x")), 9)).error_code == 3


def test_produce_with_impossible_acks(wire: Wire, topic: str) -> None:
    assert produced(wire.call(produce(topic, batch(b"x"), acks=2), 9)).error_code == 21


def test_produce_with_zstd_in_a_version_older_than_zstd(wire: Wire, topic: str) -> None:
    assert produced(wire.call(produce(topic, batch(bytes(1000), codec=4)), 6)).error_code == 76


def test_produce_without_acks_gets_no_answer(wire: Wire, topic: str) -> None:
    for index in range(10):
        wire.send(produce(topic, batch(str(index).encode()), acks=0), 9, answered=False)
    assert wire.call(ApiVersionsRequest(), 0).error_code == 0
    assert produced(wire.call(produce(topic, batch(b"last")), 9)).base_offset == 10


def test_produce_without_acks_closes_the_connection_on_an_error(wire: Wire, name: str) -> None:
    wire.send(produce(name, batch(b"x"), acks=0), 9, answered=False)
    assert wire.closed_by_broker()


def test_log_append_time_is_answered_and_stamped(
    wire: Wire, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    records = batch(b"a", b"b", timestamps=[T0, T0 + 1])
    stamped = produced(wire.call(produce(topic, records), 9)).log_append_time_ms
    assert stamped >= T0 + 60_000
    (stored,) = MemoryRecords(bytes(fetched(wire.call(fetch(topic, 0), 12)).records))
    assert stored.validate_crc()
    assert [(each.timestamp, each.timestamp_type) for each in stored] == [(stamped, 1)] * 2


@pytest.fixture
def producer_id(wire: Wire) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    return int(wire.call(request, 4).producer_id)


def test_a_duplicate_is_answered_with_the_original_offset(
    wire: Wire, topic: str, producer_id: int
) -> None:
    def send(sequence: int, count: int = 2) -> tuple[int, int]:
        records = batch(*[b"x"] * count, producer=(producer_id, 0, sequence))
        answer = produced(wire.call(produce(topic, records), 9))
        return answer.error_code, answer.base_offset

    for sequence in (0, 2, 4, 6, 8, 0, 8, 4):
        assert send(sequence) == (0, sequence)
    assert send(12)[0] == 45, "a gap"
    assert send(10) == (0, 10)
    assert send(0)[0] in (45, 46), "older than the five that are remembered"
    assert listed(wire.call(list_offsets(topic, -1), 7)) == (0, -1, 12)


def test_producer_epochs_are_fenced(wire: Wire, topic: str, producer_id: int) -> None:
    def send(epoch: int, sequence: int) -> int:
        records = batch(b"x", producer=(producer_id, epoch, sequence))
        return int(produced(wire.call(produce(topic, records), 9)).error_code)

    assert [send(0, 0), send(0, 1)] == [0, 0]
    assert send(1, 5) == 45, "a new epoch begins with sequence 0"
    assert send(1, 0) == 0
    assert send(0, 2) == 47, "the old epoch is over"


def test_long_poll_wakes_at_once_when_a_message_arrives(
    bootstrap: str, wire: Wire, topic: str
) -> None:
    with Wire(bootstrap) as reader:
        reader.send(fetch(topic, 0, max_wait_ms=600_000), 12)
        assert produced(wire.call(produce(topic, batch(b"x")), 9)).error_code == 0
        assert read(reader.receive()) == [(0, b"x")]


def test_long_poll_waits_for_min_bytes(bootstrap: str, wire: Wire, topic: str) -> None:
    with Wire(bootstrap) as reader:
        reader.send(fetch(topic, 0, max_wait_ms=600_000, min_bytes=1000), 12)
        wire.call(produce(topic, batch(bytes(100))), 9)
        wire.call(produce(topic, batch(bytes(1000))), 9)
        assert len(read(reader.receive())) == 2


@pytest.mark.parametrize("limits", [{"max_bytes": 1}, {"partition_max_bytes": 1}])
def test_a_tiny_limit_yields_one_whole_batch(
    wire: Wire, topic: str, limits: dict[str, int]
) -> None:
    wire.call(produce(topic, batch(bytes(5000), bytes(5000))), 9)
    wire.call(produce(topic, batch(bytes(5000))), 9)
    found = read(wire.call(fetch(topic, 0, **limits), 12))
    assert [offset for offset, _ in found] == [0, 1]


def test_fetch_within_a_batch_gives_the_whole_batch(wire: Wire, topic: str) -> None:
    wire.call(produce(topic, batch(b"0", b"1", b"2")), 9)
    assert read(wire.call(fetch(topic, 1), 12)) == [(0, b"0"), (1, b"1"), (2, b"2")]


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_in_every_version_that_has_names(wire: Wire, topic: str, version: int) -> None:
    wire.call(produce(topic, batch(b"0", b"1")), 9)
    answer = wire.call(fetch(topic, 0), version)
    assert read(answer) == [(0, b"0"), (1, b"1")]
    partition = fetched(answer)
    assert (partition.error_code, partition.high_watermark) == (0, 2)
    assert partition.last_stable_offset == 2
    if version >= 5:
        assert partition.log_start_offset == 0


@pytest.mark.parametrize("version", range(13, 18))
def test_fetch_in_every_version_that_has_ids(wire: Wire, topic: str, version: int) -> None:
    wire.call(produce(topic, batch(b"0")), 9)
    request = fetch(topic, 0)
    request.topics[0].topic_id = describe_topic(wire, topic).topic_id
    answer = wire.call(request, version)
    assert read(answer) == [(0, b"0")]
    assert answer.responses[0].topic_id == request.topics[0].topic_id
    request.topics[0].topic_id = uuid.uuid4()
    assert fetched(wire.call(request, version)).error_code == 100


def test_fetch_of_what_is_not_there(wire: Wire, topic: str, name: str) -> None:
    assert fetched(wire.call(fetch(name, 0), 12)).error_code == 3
    assert fetched(wire.call(fetch(topic, 1), 12)).error_code == 1
    assert fetched(wire.call(fetch(topic, -1), 12)).error_code == 1
    ahead = fetch(topic, 0)
    ahead.topics[0].partitions[0].current_leader_epoch = 1000
    assert fetched(wire.call(ahead, 12)).error_code == 75
    elsewhere = fetch(topic, 0)
    elsewhere.topics[0].partitions[0].partition = 9
    assert fetched(wire.call(elsewhere, 12)).error_code == 3


def test_fetch_of_a_deleted_topic_by_its_old_id(wire: Wire, topic: str) -> None:
    request = fetch(topic, 0)
    request.topics[0].topic_id = describe_topic(wire, topic).topic_id
    delete_topic(wire, topic)
    assert fetched(wire.call(request, 13)).error_code in (100, 103)


@pytest.mark.parametrize("codec", range(5))
def test_a_timestamp_is_found_exactly(wire: Wire, topic: str, codec: int) -> None:
    for times in ([10, 30, 20], [40, 40, 5], [25, 60]):
        records = batch(
            *[bytes(500)] * len(times), codec=codec, timestamps=[T0 + each for each in times]
        )
        assert produced(wire.call(produce(topic, records), 9)).error_code == 0

    def find(timestamp: int) -> tuple[int, int]:
        code, found, offset = listed(wire.call(list_offsets(topic, timestamp), 7))
        assert code == 0
        return offset, found - T0 if found != -1 else -1

    wanted = {0: (0, 10), 10: (0, 10), 11: (1, 30), 30: (1, 30), 31: (3, 40), 41: (7, 60)}
    assert {asked: find(T0 + asked) for asked in wanted} == wanted
    assert find(T0 + 61) == (-1, -1)
    assert find(-3) == (7, 60)


def test_the_first_of_equal_timestamps_is_found(wire: Wire, topic: str) -> None:
    for times in ([10, 20, 20], [20, 20]):
        records = batch(*[b"x"] * len(times), timestamps=[T0 + each for each in times])
        wire.call(produce(topic, records), 9)
    assert listed(wire.call(list_offsets(topic, T0 + 20), 7)) == (0, T0 + 20, 1)
    assert listed(wire.call(list_offsets(topic, -3), 7)) == (0, T0 + 20, 1)


@pytest.mark.parametrize("version", range(1, 11))
def test_list_offsets_in_every_version(wire: Wire, topic: str, version: int) -> None:
    assert listed(wire.call(list_offsets(topic, -1), version)) == (0, -1, 0)
    assert listed(wire.call(list_offsets(topic, T0), version)) == (0, -1, -1)
    wire.call(produce(topic, batch(b"0", b"1", timestamps=[T0, T0 + 5])), 9)
    assert listed(wire.call(list_offsets(topic, -2), version)) == (0, -1, 0)
    assert listed(wire.call(list_offsets(topic, -1), version)) == (0, -1, 2)
    assert listed(wire.call(list_offsets(topic, T0 + 1), version)) == (0, T0 + 5, 1)
    if version >= 7:
        assert listed(wire.call(list_offsets(topic, -3), version)) == (0, T0 + 5, 1)


def test_list_offsets_of_an_unknown_topic(wire: Wire, name: str) -> None:
    assert listed(wire.call(list_offsets(name, -1), 7)) == (3, -1, -1)


def test_offsets_are_dense_whatever_the_batches(wire: Wire, topic: str) -> None:
    sizes = [1, 7, 3, 50, 1, 2]
    for codec, size in zip(itertools.cycle(range(5)), sizes, strict=False):
        wire.call(produce(topic, batch(*[bytes(500)] * size, codec=codec)), 9)
    found = read(wire.call(fetch(topic, 0), 12))
    assert [offset for offset, _ in found] == list(range(sum(sizes)))
    assert read(wire.call(fetch(topic, 0), 12)) == found
