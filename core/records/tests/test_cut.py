"""A cut batch that a client would read otherwise than the records that were leased to it."""

import struct
from collections.abc import Sequence
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from core.errors import KumquatError, WouldBlock
from core.logs.tests.batches import batch as plain
from core.records import batch as batches
from core.records import read_head, records_of
from core.records.cut import HEAVY, Cutter, cut
from core.records.tests.test_batch import built, resummed

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
            part = cutter.cut(1, batch, i, j, BASE - i)
            expected = [
                (BASE - i + k, 1_000 + k, b"k%d" % k, values[k], [("h", b"1")])
                for k in range(i, j + 1)
            ]
            assert read(part) == expected
            head = batches.check(memoryview(joined(_dense(part))))
            assert head.record_count == j - i + 1
            assert read_head(joined(part)).leader_epoch == -1


def _dense(part: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """With a last offset delta that fits the count, so that the checks on append can be used."""
    data = joined(part)
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
        part = memoryview(joined(cutter.cut(1, batch, first, last, BASE)))
        assert [r.value for r in records_of(part, 1 << 24)] == values[first : last + 1]


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
    part = cut(stored(resummed(data)), 1, 1, BASE)
    assert [r[3] for r in read(part)] == [b"two"]
    assert read_head(part[0])[9:12] == (4711, 3, 100)


def holed(kept: Sequence[int], count: int) -> memoryview:
    """A batch of which only some records are there, as delayed ones leave it."""
    data = built(*(b"v%d" % n for n in range(count)))
    whole = stored(data)
    parts = [joined(cut(whole, n, n, 0)) for n in kept]
    records = b"".join(part[61:] for part in parts)
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


def test_fewer_records_than_claimed_are_an_error() -> None:
    data = built(b"a", b"b")
    struct.pack_into(">i", data, 23, 9)
    struct.pack_into(">i", data, 57, 10)
    with pytest.raises(KumquatError):
        cut(memoryview(resummed(data)), 4, 5, BASE)


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
    assert cutter.cut_nowait(1, batch, 0, 9, BASE) == cutter.cut(1, batch, 0, 9, BASE)


def test_what_is_kept_of_batches_is_bounded() -> None:
    cutter = Cutter(64 << 20, keep_bytes=300_000)
    for number in range(20):
        batch = stored(built(bytes([number]) * 100_000, b"x", codec=4), number)
        cutter.cut(1, batch, 0, 0, BASE)
    assert sum(points.size for points in cutter._known.values()) <= 300_000
    for number in range(500):
        cutter.cut(1, stored(built(b"a", b"b"), number), 0, 0, BASE)
    assert len(cutter._known) <= 64


def test_only_a_large_compressed_batch_that_is_cut_would_block() -> None:
    cutter = Cutter(64 << 20)
    values = [crc32c(b"%d" % n).to_bytes(4, "big") * 8 for n in range(3000)]
    large, uncompressed = stored(built(*values, codec=1)), stored(built(*values))
    small = stored(built(b"a", b"b", codec=1))
    assert len(large) >= HEAVY
    with pytest.raises(WouldBlock):
        cutter.cut_nowait(1, large, 0, 5, BASE)
    for batch, last in ((large, 2999), (uncompressed, 5), (small, 0)):
        assert cutter.cut_nowait(1, batch, 0, last, BASE) == cutter.cut(1, batch, 0, last, BASE)
    cutter.load(1, large)
    assert cutter.cut_nowait(1, large, 0, 5, BASE) == cutter.cut(1, large, 0, 5, BASE)


def test_the_last_record_in_front_of_holes_is_found() -> None:
    cutter, batch = Cutter(1 << 20), holed([1, 2, 5], count=8)
    found = [cutter.last_in(1, batch, 0, last) for last in range(8)]
    assert found == [None, 1, 2, 2, 2, 5, 5, 5]
    assert cutter.last_in(1, batch, 3, 4) is None
    assert cutter.last_in(1, batch, 6, 7) is None
    assert cutter.last_in(2, stored(built(b"a", b"b", b"c")), 0, 1) == 1
