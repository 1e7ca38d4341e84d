"""Batches from parked records, read back as any consumer would read them."""

from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.logs.messages.parked import pack_parked
from kumquat.core.records.batch import HEAD_SIZE, LOG_APPEND_TIME, check, damage, read_head
from kumquat.core.records.records import records_of
from kumquat.core.wheel.schedule.batch_builder import MOST_RECORDS, build_batches

NOW = 1_700_000_000_000


def varint(number: int) -> bytes:
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(out) + bytes([left])


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def parked(
    value: bytes | None,
    key: bytes | None = None,
    created: int = NOW - 5,
    delay_id: bytes = b"",
    due: int = NOW - 1,
) -> bytes:
    """A parked record with one header of its own."""
    body = field(key) + field(value) + varint(3) + field(b"h") + field(b"v")
    return pack_parked(due, created, delay_id, body)


RECORDS = st.tuples(
    st.one_of(st.none(), st.binary(max_size=80), st.just(bytes(9_000))),
    st.one_of(st.none(), st.binary(max_size=9)),
    st.integers(-1, 1 << 62),
    st.binary(max_size=20),
    st.integers(0, 10**13 - 1),
)


@given(st.lists(RECORDS, max_size=40), st.integers(0, 1 << 16), st.booleans())
def test_no_record_is_lost_changed_or_put_into_a_batch_that_is_too_large(
    wanted: list[tuple[bytes | None, bytes | None, int, bytes, int]], most: int, append_time: bool
) -> None:
    records = [parked(*fields) for fields in wanted]
    found = []
    for batch, count in build_batches(records, NOW, append_time, most):
        view = memoryview(batch)
        assert check(view).record_count == count
        assert damage(view, 0) is None
        assert len(batch) <= most or count == 1
        assert bool(read_head(view).attributes & LOG_APPEND_TIME) == append_time
        opened = list(records_of(view, 1 << 20))
        assert [record.offset for record in opened] == list(range(count))
        found += opened
    assert [(r.value, r.key, r.timestamp, r.headers) for r in found] == [
        (
            value,
            key,
            NOW,
            (
                ("h", b"v"),
                ("qmq-due-ms", b"%013d" % due),
                ("qmq-created-ms", str(created).encode()),
            ),
        )
        for value, key, created, _, due in wanted
    ]


def test_ten_thousand_small_records_are_split_by_count() -> None:
    record = parked(b"x")
    built = build_batches([record] * 10_000, NOW, False, 1 << 30)
    assert [count for _, count in built] == [MOST_RECORDS, 10_000 - MOST_RECORDS]
    for batch, count in built:
        assert [r.offset for r in records_of(memoryview(batch), 1 << 30)] == list(range(count))


def test_batches_are_filled_up_to_the_limit() -> None:
    record = parked(bytes(200))
    one = len(build_batches([record], NOW, False, 1 << 20)[0][0]) - HEAD_SIZE
    built = build_batches([record] * 100, NOW, False, HEAD_SIZE + 25 * one + 30)
    assert [count for _, count in built] == [25, 25, 25, 25]
