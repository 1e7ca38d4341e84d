"""Batches that must not get into the log, and stored ones that must not get out."""

import struct
import tracemalloc

import pytest
from crc32c import crc32c
from kafka.record.memory_records import MemoryRecordsBuilder

from kumquat.core.errors import (
    InvalidRecord,
    InvalidTransactionState,
    KumquatError,
    UnsupportedCompression,
)
from kumquat.core.records import batch as batches
from kumquat.core.records import damage, read_head, records_of


def built(*values: bytes, codec: int = 0, headers: tuple[tuple[str, bytes], ...] = ()) -> bytearray:
    """A batch as kafka-python writes it."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for number, value in enumerate(values):
        builder.append(
            timestamp=1_000 + number, key=b"k%d" % number, value=value, headers=list(headers)
        )
    builder.close()
    return bytearray(builder.buffer())


def resummed(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def refused(data: bytearray, error: type[KumquatError]) -> str:
    with pytest.raises(error) as caught:
        batches.check(memoryview(data))
    return str(caught.value)


def test_a_whole_batch_is_taken() -> None:
    head = batches.check(memoryview(built(b"a", b"b", b"c")))
    assert head.record_count == 3
    assert head.max_timestamp == 1_002


def test_every_flipped_bit_behind_the_crc_is_noticed() -> None:
    whole = built(b"some value", b"another")
    for at in range(21, len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[at] ^= 1 << bit
            with pytest.raises(KumquatError):
                batches.check(memoryview(data))


def test_every_truncation_is_noticed() -> None:
    whole = built(b"some value", b"another")
    for size in range(len(whole)):
        with pytest.raises(KumquatError):
            batches.check(memoryview(whole[:size]))


def test_two_batches_in_one_partition_are_refused() -> None:
    assert "follow the batch" in refused(built(b"a") + built(b"b"), InvalidRecord)


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_format_is_refused_by_name(magic: int) -> None:
    builder = MemoryRecordsBuilder(magic=magic, compression_type=0, batch_size=4096)
    builder.append(timestamp=1, key=None, value=b"v", headers=[])
    builder.close()
    assert f"format {magic}" in refused(bytearray(builder.buffer()), InvalidRecord)


@pytest.mark.parametrize(("delta", "count"), [(0, 2), (5, 2), (-1, 0), (-2, -1), (2**31 - 1, 2)])
def test_counts_that_do_not_agree_are_refused(delta: int, count: int) -> None:
    data = built(b"a", b"b")
    struct.pack_into(">i", data, 23, delta)
    struct.pack_into(">i", data, 57, count)
    refused(resummed(data), InvalidRecord)


@pytest.mark.parametrize(("codec", "count"), [(0, 3), (0, 2**31 - 1), (4, 2**31 - 1)])
def test_a_small_batch_cannot_claim_millions_of_offsets(codec: int, count: int) -> None:
    data = built(b"", b"", codec=codec)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    if codec == 0 and count == 3:
        del data[61 + 2 * 7 :]
        struct.pack_into(">i", data, 8, len(data) - 12)
    refused(resummed(data), InvalidRecord)


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        (0x20, InvalidRecord),
        (0x10, InvalidTransactionState),
        (0x05, UnsupportedCompression),
        (0x07, UnsupportedCompression),
    ],
)
def test_attributes_that_are_not_served_are_refused(
    attributes: int, error: type[KumquatError]
) -> None:
    data = built(b"a")
    struct.pack_into(">h", data, 21, attributes)
    refused(resummed(data), error)


def test_a_producer_without_a_sequence_number_is_refused() -> None:
    data = built(b"a")
    struct.pack_into(">qhi", data, 43, 7, 0, -1)
    refused(resummed(data), InvalidRecord)


def test_stamping_leaves_the_batch_whole() -> None:
    data = built(b"a", b"b")
    batches.stamp(memoryview(data), 12345)
    assert damage(memoryview(data), 12345) is None
    assert damage(memoryview(data), 12346) is not None


def test_log_append_time_is_what_every_record_shows() -> None:
    data = built(b"a", b"b")
    crc = batches.stamp_append_time(memoryview(data), 777_000)
    head = batches.check(memoryview(data))
    assert (head.crc, head.max_timestamp) == (crc, 777_000)
    assert [r.timestamp for r in records_of(memoryview(data), 1 << 20)] == [777_000, 777_000]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_records_of_every_codec_are_read_as_they_were_written(codec: int) -> None:
    values = [b"x" * 500, b"", b"y" * 3]
    data = built(*values, codec=codec, headers=(("h", b"1"), ("h2", b"")))
    batches.stamp(memoryview(data), 40)
    records = list(records_of(memoryview(data), 1 << 20))
    assert [r.value for r in records] == values
    assert [r.offset for r in records] == [40, 41, 42]
    assert [r.timestamp for r in records] == [1_000, 1_001, 1_002]
    assert records[0].key == b"k0"
    assert records[0].headers == (("h", b"1"), ("h2", b""))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_decompression_bomb_is_refused_at_the_bound(codec: int) -> None:
    bomb = built(bytes(8 << 20), codec=codec)
    with pytest.raises(InvalidRecord, match=r"max\.decompressed\.bytes"):
        list(records_of(memoryview(bomb), 1 << 20))
    assert len(list(records_of(memoryview(bomb), 16 << 20))) == 1


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_garbage_in_place_of_records_is_an_error_with_a_code(codec: int) -> None:
    data = built(b"a" * 100, b"b" * 100, codec=codec)
    for at in range(61, len(data)):
        for replacement in (0x00, 0xFF, data[at] ^ 0x10):
            mutated = bytearray(data)
            mutated[at] = replacement
            try:
                list(records_of(memoryview(mutated), 1 << 20))
            except KumquatError:
                continue


def test_a_head_is_read_field_by_field() -> None:
    head = read_head(built(b"a"))
    assert (head.magic, head.producer_id, head.leader_epoch) == (2, -1, 0)


def test_a_search_through_a_compressed_batch_holds_a_piece_of_it_at_a_time() -> None:
    batch = memoryview(built(*[bytes(10_000)] * 100, codec=4))
    tracemalloc.start()
    try:
        assert sum(1 for _ in records_of(batch, 1 << 24)) == 100
        assert tracemalloc.get_traced_memory()[1] < 700_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_that_holds_fewer_records_than_it_claims_says_so_at_its_end(codec: int) -> None:
    data = built(b"a" * 300, b"b", codec=codec)
    struct.pack_into(">i", data, 23, 4)
    struct.pack_into(">i", data, 57, 5)
    found = records_of(memoryview(data), 1 << 20)
    assert [next(found).value, next(found).value] == [b"a" * 300, b"b"]
    with pytest.raises(InvalidRecord, match="3 of 5 records are missing"):
        next(found)
