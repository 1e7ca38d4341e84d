"""A batch that goes the wrong way, is inflated twice, or keeps the event loop busy with its frames."""

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.errors import CorruptMessage, InvalidRecord, KumquatError
from kumquat.core.inflation import QUICK
from kumquat.core.records import compression
from kumquat.core.records.compression import LIGHT, compressed, inflate, inflate_light
from kumquat.core.records.frames import GZIP, LZ4, SNAPPY, UNKNOWN, ZSTD, announced
from kumquat.core.records.look import ASKS, CARRIED, LARGE, PLAIN, look
from kumquat.core.records.tests.codecs import WRITERS
from kumquat.core.records.tests.test_batch import built, resummed

LIMIT = 64 << 20
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
HONEST = [name for name in WRITERS if name not in ("gzip in two members", "lz4 in large blocks")]
each_codec = pytest.mark.parametrize("codec", CODECS)
chance = random.Random(7)
words = [chance.randbytes(8) for _ in range(500)]
noise = b"".join(chance.choices(words, k=3 * LIGHT // 8))
"""Every codec makes less of it, and none makes little of it."""


def with_data(codec: int, data: bytes, records: int = 1) -> memoryview:
    """A batch of so many records, whose compressed records are `data`."""
    batch = built(b"x")[:61] + data
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, records - 1)
    struct.pack_into(">i", batch, 57, records)
    return memoryview(resummed(batch))


@pytest.mark.parametrize("name", HONEST)
@settings(deadline=None, max_examples=30)
@given(size=st.integers(0, 700_000), period=st.sampled_from([1, 7, 5_000, 1 << 20]))
def test_no_encoder_writes_more_than_is_announced(name: str, size: int, period: int) -> None:
    codec, write = WRITERS[name]
    data = (noise[:period] * (size // min(period, len(noise)) + 1))[:size]
    said = announced(codec, memoryview(write(data)), LIMIT)
    assert size <= said <= 2 * size + 2 * (256 << 10)


@pytest.mark.parametrize(("size", "lane"), [(300, 0), (50_000, 0), (1_000_000, QUICK)])
def test_a_batch_in_large_blocks_of_lz4_does_not_go_to_the_slow_lane(size: int, lane: int) -> None:
    """Go's clients say 4 MiB, whatever they write."""
    records = (noise * 3)[:size]
    found = look(with_data(LZ4, WRITERS["lz4 in large blocks"][1](records)), True, LIMIT)
    assert found.verdict is (LARGE if lane else PLAIN)
    assert found.size <= lane


@each_codec
def test_only_a_batch_that_the_loop_can_inflate_is_inflated_there(codec: int) -> None:
    small, large = (memoryview(built(noise[:size], codec=codec)) for size in (60_000, 140_000))
    assert look(small, True, LIMIT).verdict is PLAIN
    found = look(large, True, LIMIT)
    assert found.verdict is LARGE
    assert found.size > LIGHT
    assert found.head.record_count == 1


@pytest.mark.parametrize("name", WRITERS)
@settings(deadline=None, max_examples=30)
@given(size=st.integers(0, LIGHT), limit=st.sampled_from([1_000, LIMIT]))
def test_a_light_batch_is_inflated_to_the_last_byte(name: str, size: int, limit: int) -> None:
    codec, write = WRITERS[name]
    data = memoryview(write(noise[:size]))
    said = announced(codec, data, LIMIT)
    if said > LIGHT:
        return
    if size > limit:
        with pytest.raises(InvalidRecord, match=r"max\.decompressed\.bytes"):
            inflate_light(codec, data, limit, said)
    else:
        assert inflate_light(codec, data, limit, said) == noise[:size]


@pytest.mark.parametrize("name", WRITERS)
def test_a_delay_header_is_seen_wherever_the_data_is_cut_into_frames(name: str) -> None:
    codec, write = WRITERS[name]
    for before in (100, 1_000, 50_000):
        data = noise[:before] + b"qmq-delay-ms" + noise[:100]
        assert look(with_data(codec, write(data)), True, LIMIT).verdict is ASKS


def test_a_batch_that_inflates_to_more_than_it_announces_is_left_to_a_thread() -> None:
    data = b"".join(b"".join(compressed(GZIP, [part])) for part in (bytes(4 << 20), b"short"))
    assert announced(GZIP, memoryview(data), LIMIT) == 5
    assert look(with_data(GZIP, data), True, LIMIT).verdict is LARGE


def test_a_batch_that_says_it_is_short_is_not_inflated_byte_by_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    pieces = compression._pieces

    def counted(codec: int, data: memoryview, limit: int, size: int) -> object:
        asked.append(size)
        return pieces(codec, data, limit, size)

    monkeypatch.setattr(compression, "_pieces", counted)
    data = memoryview(WRITERS["gzip"][1](bytes(LIGHT)))
    assert inflate_light(GZIP, data, LIMIT, 0) == bytes(LIGHT)
    assert asked[0] > 10_000


def zstd_of_nothing(blocks: int) -> bytes:
    return b"\x28\xb5\x2f\xfd\x00\x00" + b"\x02\0\0\0" * (blocks - 1) + b"\x03\0\0\0"


def lz4_of_little(blocks: int) -> bytes:
    return WRITERS["lz4 with independent blocks"][1](b"")[:7] + b"\x01\0\0\x80x" * blocks + bytes(4)


def snappy_of_nothing(blocks: int) -> bytes:
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"\0\0\0\x01\0" * blocks


@pytest.mark.parametrize(
    ("codec", "made", "each"),
    [(ZSTD, zstd_of_nothing, 0), (LZ4, lz4_of_little, 1), (SNAPPY, snappy_of_nothing, 0)],
)
def test_hundreds_of_thousands_of_blocks_are_not_walked_on_the_loop(
    codec: int, made: Callable[[int], bytes], each: int
) -> None:
    assert announced(codec, memoryview(made(200)), LIMIT) == 200 * each
    many = made(200_000)
    assert announced(codec, memoryview(many), LIMIT) == UNKNOWN
    assert look(with_data(codec, many), True, LIMIT).verdict is LARGE


@each_codec
def test_a_small_batch_that_asks_carries_its_records_and_a_larger_one_does_not(codec: int) -> None:
    later = (("qmq-delay-ms", b"5"),)
    small = memoryview(built(noise[:5_000], codec=codec, headers=later))
    found = look(small, True, LIMIT)
    assert found.verdict is ASKS
    assert found.records == inflate(codec, small[61:], LIMIT)
    larger = memoryview(built(noise[: 2 * CARRIED], codec=codec, headers=later))
    found = look(larger, True, LIMIT)
    assert (found.verdict, found.records) == (ASKS, None)
    assert found.size > 2 * CARRIED


def test_an_uncompressed_batch_that_asks_carries_its_records_whatever_their_size() -> None:
    batch = memoryview(built(noise, headers=(("qmq-delay-ms", b"5"),)))
    found = look(batch, True, LIMIT)
    assert (found.verdict, found.size, found.records) == (ASKS, len(batch) - 61, batch[61:])


@each_codec
def test_a_subject_without_delay_takes_what_cannot_even_be_inflated(codec: int) -> None:
    garbage = with_data(codec, b"no compressed data" + bytes(4))
    assert look(garbage, False, LIMIT).verdict is PLAIN
    with pytest.raises(CorruptMessage):
        look(garbage, True, LIMIT)


@each_codec
def test_a_small_batch_that_claims_millions_of_records_is_refused(codec: int) -> None:
    data = with_data(codec, b"".join(compressed(codec, [bytes(300)])), 3_000_000)
    with pytest.raises(InvalidRecord, match="claims 3000000 records"):
        look(data, True, LIMIT)


@each_codec
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_garbage_is_refused_or_left_to_a_thread_and_breaks_nothing(
    codec: int, data: st.DataObject
) -> None:
    whole = bytearray(b"".join(compressed(codec, [noise[:500] * 3])))
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=4)):
        whole[at] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(0, len(whole))) :]
    try:
        found = look(with_data(codec, bytes(whole)), True, LIMIT)
    except KumquatError:
        return
    assert found.head.record_count == 1
