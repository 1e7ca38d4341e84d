"""A batch that asks for something and is taken for a plain one, or is opened for nothing."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.errors import InvalidRecord, WouldBlock
from kumquat.core.records.batch import check
from kumquat.core.records.compression import LIGHT
from kumquat.core.records.marks import OURS, PREFIX, Survey, look_through, may_ask, survey
from kumquat.core.records.tests.test_batch import built, resummed

ours = st.sampled_from(
    [
        b"qmq-due-ms",
        b"qmq-created-ms",
        b"qmq-attempt",
        b"qmq-retry-at",
        b"qmq-dead-reason",
        b"qmq-redriven-ms",
    ]
)
others = st.sampled_from(
    [
        b"qmq-",
        b"qmq-delay-ms",
        b"qmq-dealy",
        b"qmq-due-",
        b"qmq-retryat",
        b"qmq-dead",
        b"qmq-redrive",
        b"q",
    ]
)


@st.composite
def cased(draw: st.DrawFn, names: st.SearchStrategy[bytes]) -> bytes:
    name = draw(names)
    upper = draw(st.sets(st.integers(0, len(name) - 1)))
    return bytes(c - 32 if i in upper and 97 <= c <= 122 else c for i, c in enumerate(name))


data_parts = st.lists(
    st.one_of(
        st.binary(max_size=6), cased(ours), cased(others), st.sampled_from([b"qm", b"Q", b"-"])
    ),
    max_size=12,
)


def foreign(data: bytes) -> bool:
    """Whether a `qmq-`, case aside, belongs to no name of ours; found the slow way."""
    lowered = data.lower()
    return any(
        lowered.startswith(PREFIX, at) and not lowered.startswith(OURS, at)
        for at in range(len(lowered))
    )


@settings(max_examples=15 * settings().max_examples, deadline=None)
@given(data_parts, st.lists(st.integers(0, 80), max_size=12))
def test_a_mark_is_found_wherever_the_borders_of_the_pieces_lie(
    parts: list[bytes], borders: list[int]
) -> None:
    data = b"".join(parts)
    cuts = sorted({min(border, len(data)) for border in borders} | {0, len(data)})
    cut = [data[a:b] for a, b in pairwise(cuts)]
    assert look_through(cut) == Survey(len(data), foreign(data))


@settings(max_examples=10 * settings().max_examples, deadline=None)
@given(data_parts)
def test_a_mark_is_found_in_a_batch_whose_last_record_has_headers(parts: list[bytes]) -> None:
    data = b"".join([*parts, b"x"])
    assert may_ask(data) == foreign(data)
    assert may_ask(memoryview(data)) == foreign(data)


@settings(max_examples=5 * settings().max_examples, deadline=None)
@given(data_parts)
def test_a_mark_in_small_letters_is_found_in_every_batch(parts: list[bytes]) -> None:
    data = b"".join([*parts, b"\0"])
    assert may_ask(data) == (PREFIX in data and foreign(data))


def test_what_inflates_to_more_than_the_loop_may_is_not_done_there() -> None:
    bomb = memoryview(built(bytes(4 << 20), codec=4))
    assert len(bomb) < 2000
    with pytest.raises(WouldBlock):
        survey(bomb, check(bomb), 64 << 20, LIGHT)
    assert survey(bomb, check(bomb), 64 << 20).size > 4 << 20


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_batch_that_claims_millions_of_records_and_holds_one_is_refused(
    codec: int,
) -> None:
    data = built(b"one" * 100, codec=codec)
    struct.pack_into(">i", data, 23, 3_000_000 - 1)
    struct.pack_into(">i", data, 57, 3_000_000)
    batch = memoryview(resummed(data))
    with pytest.raises(InvalidRecord, match="claims 3000000 records"):
        survey(batch, check(batch), 64 << 20)
