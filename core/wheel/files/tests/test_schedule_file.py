"""A schedule file against plain lists: no message is missed, given twice, miscounted or mixed up."""

import threading
from itertools import pairwise
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.logs.disk.files import RealFiles
from kumquat.core.logs.messages.parked import CANCELLED, MOVED, pack_parked
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.tests.schedules import (
    EVER,
    FOLDER,
    NOON,
    SLOW,
    Fill,
    fake_files,
    fills,
    messages_of,
    newest,
    parked,
    small_blocks,
    tombstones_of,
)
from kumquat.core.wheel.format import (
    ENTRY,
    HOUR_MS,
    MESSAGE,
    NAMED,
    PENDING,
    TOMBSTONE,
    Name,
    Parked,
    ScheduleClosed,
    hour_of,
)

EDGES = st.one_of(
    st.integers(-HOUR_MS, 5 * HOUR_MS),
    st.sampled_from([-1, 0, 1, 5]).map(lambda k: k * HOUR_MS),
).map(lambda at: NOON + at)


@settings(SLOW, max_examples=40)
@given(fill=fills(), low=EDGES, high=EDGES, subject=st.sampled_from([None, 1, 2, 7]))
def test_a_range_of_due_times_gives_what_was_parked_in_it(
    fill: Fill, low: int, high: int, subject: int | None
) -> None:
    with small_blocks():
        file = fill.write(fake_files())
        assert messages_of(file) == sorted(fill.parked)
        assert tombstones_of(file) == sorted(set(fill.tombstones))
        inside = [
            one
            for one in sorted(fill.parked)
            if low <= one.due < high and subject in (None, one.subject_id)
        ]
        assert file.count(subject, low, high) == len(inside)
        found = [
            (due, schedule_id)
            for hour in range(hour_of(low), hour_of(high) + 1)
            for row in file.rows_of(hour)
            if row.kind == MESSAGE and subject in (None, row.subject_id)
            for due, schedule_id, *_ in ENTRY.iter_unpack(file.entries(row, low, high))
        ]
        assert sorted(found) == [(one.due, one.schedule_id) for one in inside]
        dead = {
            one
            for one in fill.tombstones
            if low <= one.due < high and subject in (None, one.subject_id)
        }
        assert file.count(subject, low, high, TOMBSTONE) == len(dead)


@settings(SLOW, max_examples=40)
@given(fill=fills())
def test_rows_are_found_by_hour_and_by_subject(fill: Fill) -> None:
    with small_blocks():
        file = fill.write(fake_files())
        for kind, items in ((MESSAGE, fill.parked), (TOMBSTONE, set(fill.tombstones))):
            expected: dict[tuple[int, int], int] = {}
            for due, _, subject_id, *_ in items:
                key = hour_of(due), subject_id
                expected[key] = expected.get(key, 0) + 1
            rows = list(file.rows(kind))
            assert {(row.hour, row.subject_id): row.entries for row in rows} == expected
            assert all(a[:2] < b[:2] for a, b in pairwise(rows))
            assert all(file.row(row.hour, row.subject_id, kind) == row for row in rows)
            assert list(file.ledger(kind)) == sorted((s, h, n) for (h, s), n in expected.items())
            for subject_id in (1, 2, 3, 9):
                own = [row for row in rows if row.subject_id == subject_id]
                assert list(file.rows_of_subject(subject_id, kind)) == own
                some = list(file.rows_of_subject(subject_id, kind, NOON // HOUR_MS + 1))
                assert some == [row for row in own if row.hour > NOON // HOUR_MS]
            assert file.row(0, 1, kind) is None
            assert file.row(1 << 31, 1, kind) is None


@settings(SLOW, max_examples=40)
@given(fill=fills())
def test_a_name_is_found_with_the_last_word_about_it(fill: Fill) -> None:
    with small_blocks():
        file = fill.write(fake_files())
        expected = newest([fill])
        assert {(one.subject_id, one.delay_id): one for one in file.names()} == expected
        for (subject_id, delay_id), name in expected.items():
            assert file.find(subject_id, delay_id) == name
            assert file.find(subject_id + 1000, delay_id) is None
        assert file.find(1, b"nobody") is None


@settings(SLOW, max_examples=40)
@given(fill=fills())
def test_the_hours_of_a_file_are_those_of_all_that_is_in_it(fill: Fill) -> None:
    file = fill.write(fake_files())
    hours = {hour_of(one.due) for one in fill.parked}
    hours |= {hour_of(one.due) for one in fill.tombstones}
    hours |= {hour_of(one.keep) for one in file.names()}
    assert file.hours() == ((min(hours), max(hours)) if hours else (0, 0))
    for hour in {*hours, 0, 1 << 31}:
        passed = sum(hour_of(one.due) < hour for one in fill.parked)
        records = sum(len(one.record) for one in fill.parked)
        expected = passed and 32 * passed + records * passed // len(fill.parked)
        assert file.bytes_before(hour) == (file.size if file.hours()[1] < hour else expected)


@settings(SLOW, max_examples=40)
@given(fill=fills(), order=st.randoms(use_true_random=False))
def test_records_read_together_are_those_read_singly(fill: Fill, order: Random) -> None:
    file = fill.write(fake_files())
    places = [
        (offset, length)
        for row in file.rows(MESSAGE)
        for _, _, offset, length, _ in ENTRY.iter_unpack(file.table(row.first, row.entries))
    ]
    order.shuffle(places)
    assert file.read_many(places) == [file.read(*place) for place in places]


def test_ids_with_one_hash_are_not_taken_for_each_other() -> None:
    with (
        patch("kumquat.core.wheel.files.file.name_hash", same_hash),
        patch("kumquat.core.wheel.files.writing.output.name_hash", same_hash),
        patch("kumquat.core.wheel.files.writing.writer.name_hash", same_hash),
    ):
        names = [Name(1, b"%d" % i, i, NOON + i, PENDING) for i in range(20)]
        file = Fill((0, 100), names=names).write(fake_files())
        found = [file.find(1, b"%d" % i) for i in range(20)]
        assert found == [name._replace(keep=name.due) for name in names]
        assert file.find(1, b"20") is None


def same_hash(delay_id: bytes) -> bytes:
    return b"12345678"


def test_a_moved_message_is_kept_as_long_as_the_older_word_about_its_name() -> None:
    """Else the older file, which says that it is pending at its old time, would be heard again."""
    late = NOON + 9 * HOUR_MS
    names = [
        Name(1, b"told twice", 5, late, MOVED),
        Name(1, b"told twice", 50, NOON + HOUR_MS, PENDING),
        Name(1, b"told once", 50, NOON + HOUR_MS, MOVED, keep=late),
        Name(1, b"cancelled", 6, NOON, CANCELLED),
    ]
    file = Fill((0, 100), names=names).write(fake_files())
    keeps = {name.delay_id: name.keep for name in file.names()}
    assert keeps == {b"told twice": late, b"told once": late, b"cancelled": NOON}
    assert file.hours() == (hour_of(NOON), hour_of(late))


def test_an_entry_tells_whether_it_has_a_delay_id() -> None:
    long_id = bytes(255)
    wanted = {1: b"", 2: b"x", 3: long_id}
    file = Fill(
        (0, 100), [parked(NOON, schedule_id, 1, name) for schedule_id, name in wanted.items()]
    ).write(fake_files())
    [row] = file.rows_of(hour_of(NOON))
    table = file.entries(row, NOON, NOON + 1)
    assert {
        schedule_id: bool(flags & NAMED) for _, schedule_id, _, flags, _ in ENTRY.iter_unpack(table)
    } == {
        1: False,
        2: True,
        3: True,
    }


def test_a_file_that_is_closed_while_it_is_read_is_closed_by_its_last_reader() -> None:
    files = SlowReads(FOLDER.parent)
    files.mkdir(FOLDER)
    file = Fill((0, 100), [parked(NOON, 1)]).write(files)
    found: list[bytes] = []
    files.hold = threading.Event()
    reader = threading.Thread(target=lambda: found.append(file.read(0, 46)))
    reader.start()
    assert files.reading.wait(60)
    file.close()
    file.close()
    assert files.open_handles() == 1
    with pytest.raises(ScheduleClosed):
        file.read(0, 46)
    files.hold.set()
    reader.join(60)
    assert found == [parked(NOON, 1).record]
    assert files.open_handles() == 0


class SlowReads(FakeFiles):
    hold: threading.Event | None = None

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.reading = threading.Event()

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        if self.hold is not None:
            self.reading.set()
            self.hold.wait(60)
        return super().pread(fd, size, offset)


def test_an_entry_costs_hardly_more_than_its_32_bytes_and_its_record(tmp_path: Path) -> None:
    """Half a year, two subjects: many small rows."""
    count, span = 120_000, 182 * 24 * HOUR_MS
    record = pack_parked(NOON, NOON, b"", bytes(200))
    spread = (
        Parked(NOON + i * 7_919_000_111 % span, 60 + i * 240, 1 + i % 2, record)
        for i in range(count)
    )
    file = Fill((0, 1 << 40), list(spread)).write(RealFiles(), tmp_path)
    assert file.size / count < 32 + len(record) + 4
    assert file.count(None, 0, EVER) == count
    assert file.count(1, 0, EVER) == count // 2
    assert sum(1 for _ in file.rows(MESSAGE)) > 8_000
    again = ScheduleFile(RealFiles(), file.path)
    assert again.count(2, NOON, NOON + span) == count // 2
    again.close()
    file.close()
