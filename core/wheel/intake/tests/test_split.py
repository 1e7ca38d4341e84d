"""A batch whose parts are not what its client asked for, or that is split where it must be refused."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from kumquat.core.errors import CorruptMessage, InvalidRecord
from kumquat.core.logs.messages.parked import RECORD_HEAD_SIZE, heads_of, parked_damage
from kumquat.core.records import Record, check, read_head, records_of
from kumquat.core.records.batch import CODEC_MASK, HEAD, HEAD_SIZE, BatchHead, stamp_append_time
from kumquat.core.records.compression import inflate
from kumquat.core.records.marks import may_ask, survey
from kumquat.core.records.tests.test_batch import resummed
from kumquat.core.wheel.intake.split import Cancel, Split, split

NOW = 1_800_000_000_000
YEAR = 365 * 86_400_000
LIMIT = 1 << 20
CREATED = 1_799_999_000_000

Headers = Sequence[tuple[str, bytes | None]]


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


def batch_of(*sent: Sent | Headers, codec: int = 0) -> memoryview:
    """A batch as kafka-python writes it; headers alone stand for a record with some key and value."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 22)
    for number, record in enumerate(sent):
        if not isinstance(record, Sent):
            record = Sent(b"key %d" % number, b"value %d" % number, record)
        key, value, headers = record
        builder.append(CREATED + number, key, value, list(headers))
    builder.close()
    return memoryview(bytearray(builder.buffer()))


def opened(batch: memoryview) -> Split | None:
    head = check(batch)
    if not looked(batch, head):
        return None
    data = inflate(head.attributes & CODEC_MASK, batch[HEAD_SIZE:], LIMIT)
    return split(batch, head, data, NOW, YEAR, LIMIT)


def looked(batch: memoryview, head: BatchHead) -> bool:
    """Whether the batch is opened at all."""
    return survey(batch, head, LIMIT).asks if head.attributes & CODEC_MASK else may_ask(batch)


def parts_of(batch: memoryview) -> Split:
    found = opened(batch)
    assert found is not None
    return found


def reason(*sent: Sent | Headers) -> str:
    with pytest.raises(InvalidRecord) as caught:
        opened(batch_of(*sent))
    return str(caught.value)


class Parked(NamedTuple):
    due: int
    created: int
    delay_id: bytes
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def parked_of(found: Split) -> list[Parked]:
    """The parked records, read back as delivery will write them: its two headers appended."""
    out: list[Parked] = []
    starts = []
    for at, head in heads_of(found.parked, 0):
        starts.append(at)
        record = found.parked[at : at + head.length]
        assert parked_damage(record) is None
        begin = RECORD_HEAD_SIZE + head.id_length
        assert found.names.get(len(out), b"") == record[RECORD_HEAD_SIZE:begin]
        delivered = _record_alone(record[begin:] + b"\x14qmq-due-ms\x021\x1cqmq-created-ms\x022")
        assert delivered.headers[-2:] == (("qmq-due-ms", b"1"), ("qmq-created-ms", b"2"))
        out.append(
            Parked(
                head.due,
                head.created,
                record[RECORD_HEAD_SIZE:begin],
                delivered.key,
                delivered.value,
                delivered.headers[:-2],
            )
        )
    assert starts == found.starts
    assert [record.due for record in out] == found.dues
    return out


def _record_alone(fields: bytes) -> Record:
    """The only record of a batch, from its key length on."""
    fields = b"\0\0\0" + fields
    length = bytearray()
    left = 2 * len(fields)
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    records = bytes([*length, left]) + fields
    head = HEAD.pack(0, 49 + len(records), 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    (record,) = records_of(memoryview(head + records), LIMIT)
    return record


def plain_of(found: Split) -> list[Record]:
    """The plain records as kafka-python reads them, its CRC checked; and so do we."""
    if found.plain is None:
        return []
    read = MemoryRecords(bytes(found.plain))
    client = read.next_batch()
    assert client.validate_crc()
    ours = list(records_of(memoryview(found.plain), LIMIT))
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in client] == [
        (r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in ours
    ]
    assert not read.has_next()
    return ours


# What the headers of a record ask for, told once more, slowly.


class Bad(Exception):
    pass


def wish_of(headers: Headers) -> tuple[int | None, bytes | None, bytes | None]:
    """Due, delay id, id to cancel. Bad: refused."""

    def one(name: str, least: int, most: int) -> bytes | None:
        values = [value for found, value in headers if found == name]
        if not values:
            return None
        if len(values) > 1 or values[0] is None or not least <= len(values[0]) <= most:
            raise Bad
        return values[0]

    def number(name: str) -> int | None:
        text = one(name, 1, 19)
        if text is not None and not set(text) <= set(b"0123456789"):
            raise Bad
        return None if text is None else int(text)

    delay, at = number("qmq-delay-ms"), number("qmq-deliver-at")
    name, cancel = one("qmq-delay-id", 1, 255), one("qmq-delay-cancel", 1, 255)
    due = at if delay is None else NOW + delay
    try:
        both = ((name or b"") + (cancel or b"")).decode()
    except UnicodeDecodeError:
        raise Bad from None
    alone = name is not None and due is None
    if (delay is not None and at is not None) or (name and cancel) or (due or 0) > NOW + YEAR:
        raise Bad
    if alone and not cancel:
        raise Bad
    assert both is not None
    return None if due is None else max(due, NOW), name, cancel


def check_against_records(batch: memoryview) -> None:
    sent = list(records_of(batch, LIMIT))
    plain, cancels = [], []
    parked: list[Parked] = []
    try:
        for index, record in enumerate(sent):
            due, name, cancel = wish_of(record.headers)
            stay = tuple(
                header
                for header in record.headers
                if not header[0].startswith(("qmq-delay-", "qmq-deliver-at"))
                and header[0] not in ("qmq-due-ms", "qmq-created-ms")
            )
            if cancel is not None:
                cancels.append(Cancel(index, cancel, due, len(parked)))
            elif due is not None:
                time = record.timestamp
                parked.append(Parked(due, time, name or b"", record.key, record.value, stay))
            else:
                plain.append(record)
    except Bad:
        with pytest.raises(InvalidRecord, match=f"^record {index} of the batch"):
            opened(batch)
        return
    found = opened(batch)
    if found is None:
        assert len(plain) == len(sent)
        return
    assert plain_of(found) == plain
    assert parked_of(found) == parked
    assert found.cancels == cancels
    assert found.records == len(sent)


texts = st.one_of(
    st.sampled_from([b"0", b"60000", b"0000000000000000001", b"%d" % YEAR, b"%d" % (YEAR + 1)]),
    st.sampled_from([b"%d" % (NOW + YEAR), b"%d" % (NOW - 1), b"%d" % (NOW + YEAR + 1), b"9" * 19]),
    st.sampled_from(
        [b"", b"-1", b"+1", b"1_0", b" 1", b"1 ", b"1.0", b"\xd9\xa1", b"1" + b"0" * 30]
    ),
)
good_times = st.one_of(
    st.tuples(st.just("qmq-delay-ms"), st.integers(0, YEAR).map(b"%d".__mod__)),
    st.tuples(st.just("qmq-deliver-at"), st.integers(0, NOW + YEAR).map(b"%d".__mod__)),
)
ids = st.one_of(
    st.binary(min_size=1, max_size=3), st.sampled_from([b"i" * 255, b"i" * 256, b"\xff"])
)
good_ids = st.text(min_size=1, max_size=20).map(str.encode)
others = st.one_of(
    st.tuples(st.text(max_size=3), st.binary(max_size=5)),
    st.sampled_from(
        [
            ("qmq-due-ms", b"5"),
            ("qmq-created-ms", b"6"),
            ("qm-del", b"qmq-delay-ms"),
            ("q-", b"QMQ-Delay"),
            ("Qmq-Attempt", b"1"),
        ]
    ),
)
odd = st.one_of(
    st.tuples(st.sampled_from(["qmq-delay-ms", "qmq-deliver-at"]), texts),
    st.tuples(st.sampled_from(["qmq-delay-id", "qmq-delay-cancel"]), ids),
)
header_lists = st.one_of(
    st.lists(others, max_size=3),
    st.tuples(good_times).map(list),
    st.tuples(good_times, others).map(list),
    st.tuples(others, good_times, st.tuples(st.just("qmq-delay-id"), good_ids)).map(list),
    st.tuples(st.tuples(st.just("qmq-delay-cancel"), good_ids)).map(list),
    st.tuples(good_times, st.tuples(st.just("qmq-delay-cancel"), good_ids)).map(list),
)
blobs = st.one_of(st.none(), st.binary(max_size=5), st.sampled_from([b"x" * 70, b"y" * 9000]))
good_records = st.builds(Sent, blobs, blobs, header_lists)
any_records = st.builds(Sent, blobs, blobs, st.lists(st.one_of(odd, others), max_size=4))


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(good_records, min_size=1, max_size=8), st.integers(0, 4))
def test_what_is_asked_for_is_what_the_parts_hold(sent: list[Sent], codec: int) -> None:
    check_against_records(batch_of(*sent, codec=codec))


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(st.one_of(good_records, any_records), min_size=1, max_size=4), st.integers(0, 4))
def test_what_cannot_be_done_is_refused_and_nothing_else(sent: list[Sent], codec: int) -> None:
    check_against_records(batch_of(*sent, codec=codec))


def test_long_batches_with_every_size_of_varint() -> None:
    """Lengths, deltas and header counts of one, two and three bytes."""
    delay = ("qmq-delay-ms", b"5000")
    sizes = [0, 20, 60, 70, 8_000, 9_000, 40_000]
    sent = [
        Sent(b"k" * (size % 100), b"v" * size, [delay] if number % 3 else [])
        for number, size in enumerate(sizes * 12)
    ]
    sent += [
        Sent(None, b"", [delay, *((f"h{n}", b"") for n in range(count))])
        for count in (60, 61, 62, 63, 9_000)
    ]
    sent += [Sent(None, None, [delay] if number % 5 == 0 else []) for number in range(8_300)]
    batch = batch_of(*sent)
    head = check(batch)
    found = split(batch, head, batch[HEAD_SIZE:], NOW, YEAR, 1 << 24)
    assert found is not None
    assert len(found.starts) + len(plain_of(found)) == len(sent)
    wanted = [(r.key, r.value, tuple(r.headers[1:])) for r in sent if r.headers]
    assert [(r.key, r.value, r.headers) for r in parked_of(found)] == wanted


# Plain batches


def test_a_batch_without_the_mark_is_not_opened() -> None:
    batch = batch_of([("trace", b"1")], [("qmq-due-ms", b"1")])
    assert not may_ask(batch)


def test_the_mark_in_a_value_delays_nothing() -> None:
    value = b"\x02\x18qmq-delay-ms\x0260000"
    batch = batch_of(Sent(None, value, []), Sent(value, b"", [("my-qmq-delay-ms", b"1")]))
    assert may_ask(batch)
    assert opened(batch) is None


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_header_is_found_in_every_compression(codec: int) -> None:
    found = parts_of(batch_of([("qmq-delay-ms", b"60000")], [], codec=codec))
    assert found.dues == [NOW + 60_000]
    assert [r.offset for r in plain_of(found)] == [1]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused_unopened(codec: int) -> None:
    batch = batch_of(Sent(None, bytes(3 << 20), [("qmq-delay-ms", b"1")]), codec=codec)
    with pytest.raises((InvalidRecord, CorruptMessage)):
        survey(batch, check(batch), LIMIT)


# Mixed batches


def test_plain_records_keep_offsets_timestamps_and_producer() -> None:
    data = bytearray(batch_of([], [("qmq-delay-ms", b"1")], [], [("qmq-delay-cancel", b"x")]))
    struct.pack_into(">qhi", data, 43, 4711, 3, 100)
    found = parts_of(memoryview(resummed(data)))
    assert [(r.offset, r.timestamp, r.key) for r in plain_of(found)] == [
        (0, CREATED, b"key 0"),
        (2, CREATED + 2, b"key 2"),
    ]
    assert found.plain is not None
    head, before = read_head(found.plain), read_head(data)
    assert head.record_count == 2
    assert (head.last_offset_delta, *head[7:12]) == (3, *before[7:12])
    assert head[9:12] == (4711, 3, 100)
    assert found.records == 4


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_of_compressed_records_the_plain_ones_stay_compressed(codec: int) -> None:
    plain = Sent(None, b"much the same " * 5_000, [])
    found = parts_of(batch_of(plain, [("qmq-delay-ms", b"1")], plain, codec=codec))
    assert [(r.offset, r.value) for r in plain_of(found)] == [(0, plain.value), (2, plain.value)]
    assert found.plain is not None
    assert read_head(found.plain).attributes == codec
    assert len(found.plain) < 20_000


def test_with_append_time_the_time_of_creation_is_the_batchs() -> None:
    batch = batch_of([("qmq-delay-ms", b"1")], [("qmq-delay-ms", b"1")])
    stamp_append_time(batch, 777_000)
    assert [r.created for r in parked_of(parts_of(batch))] == [777_000, 777_000]


def test_what_is_past_is_due_now() -> None:
    found = parts_of(batch_of([("qmq-deliver-at", b"0")], [("qmq-deliver-at", b"%d" % (NOW - 1))]))
    assert found.dues == [NOW, NOW]


def test_a_clients_own_marks_of_delivery_go_only_from_delayed_records() -> None:
    own = [("qmq-due-ms", b"1"), ("qmq-created-ms", b"2"), ("mine", b"3")]
    found = parts_of(batch_of([("qmq-delay-ms", b"1"), *own], own))
    assert [r.headers for r in parked_of(found)] == [(("mine", b"3"),)]
    assert [r.headers for r in plain_of(found)] == [tuple(own)]


# Refusals


@pytest.mark.parametrize(
    ("headers", "tells"),
    [
        ([("qmq-delay-ms", b"-1")], "qmq-delay-ms is '-1'; allowed is 0 to 31536000000"),
        ([("qmq-delay-ms", b"")], "qmq-delay-ms is ''"),
        ([("qmq-delay-ms", None)], "qmq-delay-ms is null"),
        ([("qmq-delay-ms", b"soon")], "qmq-delay-ms is 'soon'"),
        ([("qmq-delay-ms", "٣".encode())], "qmq-delay-ms is"),
        ([("qmq-delay-ms", b"1" + b"0" * 30)], "qmq-delay-ms is '1000"),
        ([("qmq-delay-ms", b"1" * 100_000)], r"\(100000 bytes\)"),
        ([("qmq-delay-ms", b"%d" % (YEAR + 1))], r"delay\.max\.ms is 31536000000"),
        ([("qmq-deliver-at", b"%d" % (NOW + YEAR + 1))], f"allowed is 0 to {NOW + YEAR}"),
        ([("qmq-delay-ms", b"1"), ("qmq-delay-ms", b"1")], "qmq-delay-ms .* once"),
        ([("qmq-delay-ms", b"1"), ("qmq-deliver-at", b"1")], "qmq-deliver-at .* not beside"),
        ([("qmq-delay-id", b"a")], "qmq-delay-id .* only beside qmq-delay-ms or qmq-deliver-at"),
        (
            [("qmq-delay-ms", b"1"), ("qmq-delay-id", b"")],
            "qmq-delay-id is ''; allowed is 1 to 255",
        ),
        ([("qmq-delay-ms", b"1"), ("qmq-delay-id", None)], "qmq-delay-id is null"),
        ([("qmq-delay-ms", b"1"), ("qmq-delay-id", b"\xff")], "bytes of UTF-8"),
        ([("qmq-delay-ms", b"1"), ("qmq-delay-id", b"i" * 256)], r"\(256 bytes\)"),
        ([("qmq-delay-cancel", b"")], "qmq-delay-cancel is ''"),
        ([("qmq-delay-cancel", b"a"), ("qmq-delay-cancel", b"b")], "qmq-delay-cancel .* once"),
        ([("qmq-delay-cancel", b"a"), ("qmq-delay-id", b"a")], "qmq-delay-id .* not beside"),
        ([("qmq-delay-cancel", b"a"), ("qmq-delay-ms", b"x")], "qmq-delay-ms is 'x'"),
    ],
)
def test_a_bad_header_is_refused_by_record_name_and_reason(headers: Headers, tells: str) -> None:
    good: Headers = [("qmq-delay-ms", b"1")]
    with pytest.raises(InvalidRecord, match="^record 2 of the batch: header .*" + tells):
        opened(batch_of(good, [], headers, good))
