"""Keys alone are the keys of whole records: in every codec, with holes; and garbage is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.errors import InvalidRecord
from kumquat.core.logs.tests.batches import TIME
from kumquat.core.logs.tests.keyed import Sent, packed
from kumquat.core.records import records_of
from kumquat.core.records.batch import HEAD_SIZE
from kumquat.core.records.compression import PIECE
from kumquat.core.records.keys import keys_of
from kumquat.core.records.tests.codecs import WRITERS

LIMIT = 64 << 20
SENT = st.lists(
    st.builds(
        Sent,
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=200),
        headers=st.lists(
            st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2
        ).map(tuple),
        timestamp=st.just(TIME),
        holes=st.integers(0, 200),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("codec", ["", *WRITERS])
@given(sent=SENT)
def test_keys_are_those_of_the_records(codec: str, sent: list[Sent]) -> None:
    batch = memoryview(packed(sent, codec))
    expected = [(r.offset, r.key) for r in records_of(batch, LIMIT) if r.key is not None]
    assert list(keys_of(batch, LIMIT)) == expected


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy in blocks"])
def test_records_that_span_pieces_lose_no_key(codec: str) -> None:
    sent = [Sent(b"key %d" % n, bytes([n]) * (PIECE // 3 + n)) for n in range(12)]
    found = list(keys_of(memoryview(packed(sent, codec)), LIMIT))
    assert found == [(n, b"key %d" % n) for n in range(12)]


@given(sent=SENT, place=st.floats(0, 0.999), put=st.integers(0, 255))
def test_garbage_is_told_and_never_read_past(sent: list[Sent], place: float, put: int) -> None:
    data = packed(sent)
    data[HEAD_SIZE + int(place * (len(data) - HEAD_SIZE))] = put
    try:
        found = list(keys_of(memoryview(data), LIMIT))
    except InvalidRecord:
        return
    assert len(found) <= len(sent)
    assert all(len(key) < len(data) for _, key in found)


def test_missing_records_are_told() -> None:
    data = packed([Sent(b"a"), Sent(b"b")])
    for size in range(HEAD_SIZE, len(data)):
        with pytest.raises(InvalidRecord):
            list(keys_of(memoryview(data)[:size], LIMIT))


def test_a_key_that_claims_more_than_its_record_is_told() -> None:
    data = packed([Sent(b"abc", b"value"), Sent(b"abc", b"value")])
    data[HEAD_SIZE + 4] = 2 * 20
    with pytest.raises(InvalidRecord, match="claims 20 bytes"):
        list(keys_of(memoryview(data), LIMIT))
