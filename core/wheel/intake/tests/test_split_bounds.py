"""A batch that is stored as more than its subject allows, and headers that are obeyed by nobody."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kumquat.core.errors import InvalidRecord, MessageTooLarge
from kumquat.core.records import check
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE
from kumquat.core.records.compression import inflate
from kumquat.core.wheel.intake.split import Split, split
from kumquat.core.wheel.intake.tests.test_split import (
    NOW,
    YEAR,
    Headers,
    Sent,
    batch_of,
    looked,
    parts_of,
    reason,
)

DELAY: Headers = [("qmq-delay-ms", b"60000")]


def split_within(batch: memoryview, most: int) -> Split | None:
    head = check(batch)
    data = inflate(head.attributes & CODEC_MASK, batch[HEAD_SIZE:], 64 << 20)
    return split(batch, head, data, NOW, YEAR, most)


records = st.builds(
    Sent,
    st.none(),
    st.one_of(st.integers(0, 3000).map(bytes), st.binary(max_size=300)),
    st.sampled_from([[], DELAY]),
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(records, min_size=1, max_size=8), st.integers(0, 4), st.integers(60, 9000))
def test_what_is_stored_of_a_batch_never_passes_the_bound(
    sent: list[Sent], codec: int, most: int
) -> None:
    batch = batch_of(*sent, codec=codec)
    delayed = [record for record in sent if record.headers]
    try:
        found = split_within(batch, most)
    except MessageTooLarge:
        inflated = sum(len(record.value or b"") + 60 for record in sent)
        assert inflated > most or HEAD_SIZE + inflated > most
        return
    if found is None:
        assert not delayed
        return
    assert len(found.plain or b"") <= most
    assert sum(len(record.value or b"") for record in delayed) <= most
    assert len(found.starts) == len(delayed)


@settings(deadline=None, max_examples=50)
@given(st.lists(records, min_size=1, max_size=8))
def test_an_uncompressed_batch_that_is_small_enough_is_never_too_large_when_split(
    sent: list[Sent],
) -> None:
    batch = batch_of(*sent)
    split_within(batch, len(batch))


def test_a_small_batch_that_would_be_stored_as_megabytes_is_refused() -> None:
    batch = batch_of(*[Sent(None, bytes(1 << 20), DELAY)] * 3, codec=4)
    assert len(batch) < 2000
    with pytest.raises(MessageTooLarge, match=r"record 0 on .* max\.message\.bytes"):
        split_within(batch, 1 << 20)


def test_one_delayed_record_does_not_make_megabytes_of_the_others() -> None:
    others = [Sent(None, bytes(1 << 19), [])] * 8
    batch = batch_of(*others, Sent(None, b"later", DELAY), codec=4)
    found = split_within(batch, 1 << 20)
    assert found is not None
    assert len(found.plain or b"") + len(found.parked) < 2000


# Names that nobody knows


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("qmq-delay", "qmq-delay-ms"),
        ("QMQ-Delay-Ms", "qmq-delay-ms"),
        ("Qmq-Deliver-At", "qmq-deliver-at"),
        ("qmq-deliver-at-ms", "qmq-deliver-at"),
        ("qmq-cancel", "qmq-delay-cancel"),
        ("qMq-Delay-Id", "qmq-delay-id"),
    ],
)
def test_a_misspelled_header_is_refused_with_the_right_name(name: str, meant: str) -> None:
    told = reason([], [("trace", b"1"), (name, b"60000")])
    assert told.startswith(f"record 1 of the batch: header '{name}' is not known")
    assert f"did you mean {meant}?" in told


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_misspelled_header_is_found_in_every_compression(codec: int) -> None:
    with pytest.raises(InvalidRecord, match="QMQ-DELAY-MS"):
        parts_of(batch_of([], [("QMQ-DELAY-MS", b"60000")], codec=codec))


@pytest.mark.parametrize(
    "name",
    ["qmq-due-ms", "qmq-created-ms", "QMQ-Due-Ms", "qmq-attempt", "qmq-retry-at", "my-qmq-delay"],
)
def test_headers_of_the_broker_on_a_copied_record_pass(name: str) -> None:
    batch = batch_of([(name, b"60000")])
    assert not looked(batch, check(batch)) or split_within(batch, 1 << 20) is None
    found = parts_of(batch_of([(name, b"5")], DELAY))
    assert len(found.starts) == 1


# Times as people write them


@pytest.mark.parametrize(
    ("header", "due"),
    [
        (("qmq-delay-ms", b"900000"), NOW + 900_000),
        (("qmq-delay-ms", b"15m"), NOW + 900_000),
        (("qmq-delay-ms", b"+2h"), NOW + 7_200_000),
        (("qmq-delay-ms", b"1h30m"), NOW + 5_400_000),
        (("qmq-deliver-at", b"%d" % (NOW + 5)), NOW + 5),
        (("qmq-deliver-at", b"2027-02-01T08:00Z"), 1_801_468_800_000),
        (("qmq-deliver-at", b"2020-02-01T08:00:00+01:00"), NOW),
    ],
)
def test_a_time_is_read_as_people_write_it(header: tuple[str, bytes], due: int) -> None:
    assert parts_of(batch_of([header])).dues == [due]


@pytest.mark.parametrize(
    ("header", "tells"),
    [
        (("qmq-delay-ms", b"15M"), "as a duration (90s, 15m, 1h30m, 2d)"),
        (("qmq-delay-ms", b"366d"), "delay.max.ms is 31536000000"),
        (("qmq-deliver-at", b"2027-02-01T08:00"), "ISO 8601 with a zone"),
        (("qmq-deliver-at", b"15m"), "in milliseconds since 1970"),
    ],
)
def test_a_time_that_could_mean_several_things_is_refused_with_what_is_allowed(
    header: tuple[str, bytes], tells: str
) -> None:
    assert tells in reason([header])
