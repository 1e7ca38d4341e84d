"""A cut batch that a client would read otherwise than the records that were leased to it."""

import struct
from collections.abc import Sequence
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from kumquat.core.errors import KumquatError, WouldBlock
from kumquat.core.logs.tests.batches import batch as plain
from kumquat.core.records import batch as batches
from kumquat.core.records import read_head, records_of
from kumquat.core.records.cut import HEAVY, Cutter, cut, part
from kumquat.core.records.tests.test_batch import built, resummed

BASE = (7 << 48) + (1 << 24)


def joined(buffers: Sequence[bytes | memoryview]) -> bytearray:
    return bytearray(b"".join(buffers))


def read(
    buffers: Sequence[bytes | memoryview],
) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """What kafka-python makes of it, its CRC checked."""
    records = MemoryRecords(bytes(joined(buffers)))
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]
    return found


def stored(data: bytearray, base: int = 1000) -> memoryview:
    batches.stamp(memoryview(data), base)
    return memoryview(data)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_every_part_of_a_batch_holds_its_records_at_the_wanted_offsets(codec: int) -> None:
    values = [b"", b"a" * 3, b"b" * 70, b"c" * 9000, b"d", b"e" * 200]
    batch = stored(built(*values, codec=codec, headers=(("h", b"1"),)))
    cutter = Cutter(1 << 20)
    for i in range(len(values)):
        for j in range(i, len(values)):
            found = cutter.cut(1, batch, i, j, BASE - i)
            expected = [
                (BASE - i + k, 1_000 + k, b"k%d" % k, values[k], [("h", b"1")])
                for k in range(i, j + 1)
            ]
            assert read(found) == expected
            head = batches.check(memoryview(joined(_dense(found))))
            assert head.record_count == j - i + 1
            assert read_head(joined(found)).leader_epoch == -1


def _dense(found: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """With a last offset delta that fits the count, so that the checks on append can be used."""
    data = joined(found)
    struct.pack_into(">i", data, 23, read_head(data).record_count - 1)
    return [bytes(resummed(data))]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 50, 70, 8_190]), st.integers(1, 200)), max_size=5))
def test_runs_of_records_of_one_size_are_told_apart_where_they_end(
    runs: list[tuple[int, int]],
) -> None:
    values = [b"\x92" * size for size, count in runs for _ in range(count)] or [b"x"]
    batch = stored(plain(*values))
    middle = len(values) // 2
    cutter = Cutter(1 << 20)
    for first, last in ((middle, middle), (0, max(0, middle - 1)), (middle, len(values) - 1)):
        found = memoryview(joined(cutter.cut(1, batch, first, last, BASE)))
        assert [r.value for r in records_of(found, 1 << 24)] == values[first : last + 1]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_whole_batch_is_not_touched_behind_its_crc(codec: int) -> None:
    batch = stored(built(b"one", b"two", b"three", codec=codec))
    head, rest = cut(batch, 0, 2, BASE)
    assert bytes(head[16:]) + bytes(rest) == bytes(batch[16:])
    assert [record[0] for record in read([head, rest])] == [BASE, BASE + 1, BASE + 2]
    assert isinstance(rest, memoryview)
    assert rest.obj is batch.obj, "the records were copied"


def test_the_log_append_time_is_kept_in_a_part() -> None:
    data = built(b"one", b"two", b"three")
    batches.stamp_append_time(memoryview(data), 777_000)
    assert [r[1] for r in read(cut(stored(data), 1, 2, BASE))] == [777_000, 777_000]


def test_the_producer_of_an_idempotent_batch_is_kept_in_a_part() -> None:
    data = built(b"one", b"two", b"three")
    struct.pack_into(">qhi", data, 43, 4711, 3, 100)
    found = cut(stored(resummed(data)), 1, 1, BASE)
    assert [r[3] for r in read(found)] == [b"two"]
    assert read_head(found[0])[9:12] == (4711, 3, 100)


def holed(kept: Sequence[int], count: int) -> memoryview:
    """A batch of which only some records are there, as delayed ones leave it."""
    data = built(*(b"v%d" % n for n in range(count)))
    whole = stored(data)
    parts = [joined(cut(whole, n, n, 0)) for n in kept]
    records = b"".join(each[61:] for each in parts)
    head = bytearray(data[:61])
    struct.pack_into(">i", head, 8, 49 + len(records))
    struct.pack_into(">i", head, 23, count - 1)
    struct.pack_into(">i", head, 57, len(kept))
    return memoryview(resummed(head + records))


def test_holes_in_a_batch_are_not_counted_as_records() -> None:
    batch = holed([0, 2, 3, 7], 9)
    assert [(r[0], r[3]) for r in read(cut(batch, 1, 5, BASE))] == [
        (BASE + 2, b"v2"),
        (BASE + 3, b"v3"),
    ]
    assert [r[3] for r in read(cut(batch, 0, 8, BASE))] == [b"v0", b"v2", b"v3", b"v7"]
    assert cut(batch, 4, 6, BASE) == []
    assert cut(batch, 8, 8, BASE) == []


def test_deltas_beyond_the_batch_are_passed_over() -> None:
    batch = stored(built(b"one", b"two"))
    assert [r[3] for r in read(cut(batch, 1, 50, BASE))] == [b"two"]
    assert [r[3] for r in read(cut(batch, -5, 0, BASE))] == [b"one"]
    assert cut(batch, 2, 9, BASE) == []


@given(st.data())
def test_pieces_in_any_order_are_the_batch(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=40))
    codec = data.draw(st.sampled_from([0, 0, 4]))
    batch = stored(built(*(bytes([n % 256]) * size for n, size in enumerate(sizes)), codec=codec))
    marks = data.draw(st.sets(st.integers(1, len(sizes)), max_size=8)) | {0, len(sizes)}
    bounds = sorted(marks)
    pieces = list(pairwise(bounds))
    cutter = Cutter(1 << 20)
    found = {}
    for i, j in data.draw(st.permutations(pieces)):
        for record in read(cutter.cut(1, batch, i, j - 1, BASE)):
            found[record[0] - BASE] = record[3]
    assert found == {n: bytes([n % 256]) * size for n, size in enumerate(sizes)}


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_garbage_in_place_of_records_is_an_error_with_a_code(codec: int) -> None:
    data = built(b"a" * 100, b"b" * 100, b"c" * 100, codec=codec)
    for at in range(61, len(data)):
        for replacement in (0x00, 0xFF, data[at] ^ 0x10, data[at] ^ 0x01):
            mutated = bytearray(data)
            mutated[at] = replacement
            for i, j in ((0, 0), (1, 1), (2, 2), (0, 1)):
                try:
                    cut(memoryview(mutated), i, j, BASE, 1 << 17)
                except KumquatError:
                    continue


def short(codec: int, *values: bytes, claimed: int) -> memoryview:
    """A batch that claims more records than it holds."""
    data = built(*values, codec=codec)
    struct.pack_into(">i", data, 23, claimed - 1)
    struct.pack_into(">i", data, 57, claimed)
    return memoryview(resummed(data))


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_of_a_batch_that_holds_fewer_records_than_it_claims_those_are_given(codec: int) -> None:
    batch = short(codec, b"a" * 300, b"b", claimed=10)
    points = Cutter(1 << 20).load(1, batch)
    assert [r[3] for r in read(part(points, batch, 1, 5, BASE))] == [b"b"]
    assert part(points, batch, 4, 5, BASE) == []
    assert (points.shortage, points.missing_from(), points.why[:7]) == (2, 2, "nothing")
    assert [points.last_in(0, last) for last in (0, 1, 5)] == [0, 1, 1]
    assert points.last_in(2, 5) is None


def test_garbage_behind_some_records_leaves_those_readable() -> None:
    batch = bytearray(short(0, b"a", b"b", b"c" * 20, claimed=4))
    batch[batch.rindex(b"\x38\0\x04\x04")] = 0x7F
    points = Cutter(1 << 20).load(1, memoryview(batch))
    found = part(points, memoryview(batch), 0, 2, BASE)
    assert read_head(joined(found)).record_count == points.shortage
    assert points.shortage is not None
    assert points.shortage < 3


def test_zeros_are_no_records() -> None:
    batch = memoryview(
        resummed(bytearray(short(0, b"a", bytes(300), claimed=30))[:61] + bytes(300))
    )
    assert part(Cutter(1 << 20).load(1, batch), batch, 0, 5, BASE) == []


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_decompression_bomb_is_refused_at_the_bound(codec: int) -> None:
    bomb = stored(built(bytes(4 << 20), b"x", codec=codec))
    with pytest.raises(KumquatError, match=r"max\.decompressed\.bytes"):
        Cutter(1 << 20).cut(1, bomb, 1, 1, BASE)


def test_a_batch_is_inflated_once_and_scanned_once() -> None:
    values = [b"%d" % n * 50 for n in range(2000)]
    batch = stored(built(*values, codec=1))
    cutter = Cutter(64 << 20)
    first = cutter.load(1, batch)
    for i in range(0, 2000, 100):
        cutter.cut(1, batch, i, i + 99, BASE)
    assert cutter.load(1, memoryview(bytes(batch))) is first, "it was inflated again"
    assert cutter.load(2, batch) is not first, "batches of two subjects are mixed up"
    assert cutter.load_nowait(1, batch) is first


def test_what_is_kept_of_batches_is_bounded() -> None:
    cutter = Cutter(64 << 20, keep_bytes=300_000)
    for number in range(20):
        batch = stored(built(bytes([number]) * 100_000, b"x", codec=4), number)
        cutter.cut(1, batch, 0, 0, BASE)
    assert sum(points.size for points in cutter._known.values()) <= 300_000
    for number in range(500):
        cutter.cut(1, stored(built(b"a", b"b"), number), 0, 0, BASE)
    assert len(cutter._known) <= 64


def test_only_a_compressed_batch_that_is_large_or_inflates_to_much_would_block() -> None:
    cutter = Cutter(64 << 20)
    values = [crc32c(b"%d" % n).to_bytes(4, "big") * 8 for n in range(3000)]
    large, uncompressed = stored(built(*values, codec=1)), stored(built(*values))
    small = stored(built(b"a", b"b", codec=1))
    bomb = stored(built(bytes(1 << 20), b"b", codec=4))
    assert len(large) >= HEAVY > len(bomb)
    for batch in (large, bomb):
        with pytest.raises(WouldBlock):
            cutter.load_nowait(1, batch)
        loaded = cutter.load(1, batch)
        assert cutter.load_nowait(1, batch) is loaded
    for batch in (uncompressed, small):
        assert cutter.load_nowait(1, batch) is cutter.load(1, batch)


def test_the_last_record_in_front_of_holes_is_found() -> None:
    cutter, batch = Cutter(1 << 20), holed([1, 2, 5], count=8)
    points = cutter.load(1, batch)
    found = [points.last_in(0, last) for last in range(8)]
    assert found == [None, 1, 2, 2, 2, 5, 5, 5]
    assert points.last_in(3, 4) is None
    assert points.last_in(6, 7) is None
    assert cutter.load(2, stored(built(b"a", b"b", b"c"))).last_in(0, 1) == 1
