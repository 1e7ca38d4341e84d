"""A batch that inflates to something else, to more than is allowed, or into memory that is never freed."""

import gc
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.errors import CorruptMessage, InvalidRecord, KumquatError
from kumquat.core.records.compression import compressed, held, inflate, pieces
from kumquat.core.records.frames import GZIP, LZ4, SNAPPY, ZSTD
from kumquat.core.records.tests.codecs import WRITERS

MIB = 1 << 20
each_writer = pytest.mark.parametrize("name", WRITERS)
payloads = st.one_of(
    st.binary(max_size=300),
    st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 4_000)).map(lambda p: p[0] * p[1]),
)


@each_writer
@settings(deadline=None, max_examples=25)
@given(data=payloads, size=st.sampled_from([1, 7, 1000, 256 << 10]))
def test_pieces_are_what_was_compressed_and_none_is_larger_than_asked(
    name: str, data: bytes, size: int
) -> None:
    codec, write = WRITERS[name]
    if len(data) > 1000 * size:
        size *= 1000
    found = list(map(bytes, pieces(codec, memoryview(write(data)), len(data), size)))
    assert b"".join(found) == data
    if codec != SNAPPY:
        assert all(len(piece) <= size for piece in found)


@each_writer
@settings(deadline=None, max_examples=25)
@given(data=payloads.filter(len), short=st.integers(1, 1000))
def test_what_passes_the_limit_is_refused_whatever_it_is(
    name: str, data: bytes, short: int
) -> None:
    codec, write = WRITERS[name]
    limit = max(0, len(data) - short)
    with pytest.raises(InvalidRecord, match=r"max\.decompressed\.bytes"):
        inflate(codec, memoryview(write(data)), limit)


@pytest.mark.parametrize("name", [name for name in WRITERS if "in" not in name.split()])
def test_data_that_is_cut_off_is_refused(name: str) -> None:
    codec, write = WRITERS[name]
    whole = write(bytes(range(256)) * 40)
    for size in range(1, len(whole)):
        with pytest.raises(KumquatError):
            inflate(codec, memoryview(whole)[:size], MIB)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@settings(deadline=None, max_examples=25)
@given(parts=st.lists(payloads, max_size=4))
def test_what_is_compressed_again_is_read_as_it_was(codec: int, parts: list[bytes]) -> None:
    data = b"".join(map(bytes, compressed(codec, parts)))
    assert inflate(codec, memoryview(data), MIB * 2) == b"".join(parts)


def test_snappy_that_claims_more_than_it_can_hold_takes_no_memory() -> None:
    claim = b"\xff\xff\xff\x1f"  # 64 MiB, in four bytes
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMessage, match="claim"):
            inflate(SNAPPY, memoryview(claim + b"abc"), 64 * MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.fixture
def traced() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("traced")
@each_writer
def test_looking_through_a_bomb_takes_a_piece_and_refusing_it_keeps_nothing(name: str) -> None:
    """The errors are kept, as one in a cycle would be, and nothing is collected."""
    codec, write = WRITERS[name]
    bomb = memoryview(write(bytes(32 * MIB)))
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    kept: list[KumquatError] = []
    for _ in range(3):
        try:
            sum(map(len, pieces(codec, bomb, 16 * MIB)))
        except KumquatError as error:
            kept.append(error)
    now, peak = tracemalloc.get_traced_memory()
    assert len(kept) == 3
    assert peak - before <= held(codec, bomb, 16 * MIB) + MIB
    assert now - before < MIB


@pytest.mark.usefixtures("traced")
@each_writer
def test_a_refused_bomb_is_freed_although_somebody_keeps_the_error(name: str) -> None:
    codec, write = WRITERS[name]
    bomb = memoryview(write(bytes(32 * MIB)))
    before = tracemalloc.get_traced_memory()[0]
    with pytest.raises(InvalidRecord) as kept:
        inflate(codec, bomb, 16 * MIB)
    assert tracemalloc.get_traced_memory()[0] - before < MIB
    assert kept.value
