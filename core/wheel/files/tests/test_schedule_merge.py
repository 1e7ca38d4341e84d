"""Merged files say what the files they are made of said together, and no more is kept than is needed."""

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.logs.disk.files import RealFiles
from kumquat.core.logs.messages.parked import CANCELLED, DELIVERED, MOVED
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.tests.schedules import (
    EVER,
    FOLDER,
    NOON,
    SLOW,
    Fill,
    alive,
    fake_files,
    messages_of,
    newest,
    parked,
    small_blocks,
    tombstones_of,
)
from kumquat.core.wheel.files.writing import merge as merging
from kumquat.core.wheel.files.writing import merge_input
from kumquat.core.wheel.files.writing.merge import Weighed, merge, plan_merge
from kumquat.core.wheel.format import (
    HOUR_MS,
    MESSAGE,
    PENDING,
    TOMBSTONE,
    Name,
    Parked,
    ScheduleDamaged,
    Tombstone,
    hour_of,
)

SUBJECTS = (1, 2, 3)


def life(rng: Random, count: int) -> list[Fill]:
    """Fills as they come: messages are parked, cancelled, moved to another time, and moved back."""
    fills: list[Fill] = []
    kept_until: dict[tuple[int, bytes], int] = {}
    for k in range(count):
        begin = 1000 * (k + 1)
        fill = Fill((begin, begin + 1000))
        before = list(alive(fills).values())
        for one in rng.sample(before, rng.randrange(len(before) // 2 + 1)):
            fill.tombstones.append(Tombstone(*one[:3]))
            if rng.random() < 0.3:
                back = rng.choice([one.due, NOON + rng.randrange(4 * HOUR_MS)])
                fill.parked.append(one._replace(due=back))
        if before and rng.random() < 0.3:
            fill.tombstones.append(Tombstone(NOON + rng.randrange(4), rng.randrange(begin), 1))
        for schedule_id in rng.sample(range(begin, begin + 1000), rng.randrange(15)):
            due = NOON + rng.choice([0, 1, HOUR_MS - 1, rng.randrange(4 * HOUR_MS)])
            size = rng.choice([0, 30, 300])
            fill.parked.append(parked(due, schedule_id, rng.choice(SUBJECTS), b"", size))
        for _ in range(rng.randrange(6)):
            key = rng.choice(SUBJECTS), rng.choice([b"a", b"b", b"c%d" % k])
            due = NOON + rng.randrange(4 * HOUR_MS)
            kept_until[key] = max(kept_until.get(key, 0), due)
            status = rng.choice([PENDING, MOVED, CANCELLED])
            fill.names.append(Name(*key, begin, due, status, kept_until[key]))
        fills.append(fill)
    return fills


def content(file: ScheduleFile) -> Fill:
    check_counts(file)
    return Fill(file.stretch, messages_of(file), tombstones_of(file), list(file.names()))


def check_counts(file: ScheduleFile) -> None:
    for kind in (MESSAGE, TOMBSTONE):
        rows = list(file.rows(kind))
        assert all(row.entries for row in rows)
        assert sorted((row.subject_id, row.hour, row.entries) for row in rows) == list(
            file.ledger(kind)
        )
        assert file.count(None, 0, EVER, kind) == sum(row.entries for row in rows)


@contextmanager
def small_pieces() -> Iterator[None]:
    """So that a small row is read in many."""
    with (
        small_blocks(),
        patch.object(merge_input, "_ENTRIES", 3),
        patch.object(merge_input, "_BYTES", 100),
        patch.object(merge_input, "_AHEAD", 200),
        patch.object(merging, "HELD", 64),
    ):
        yield


@settings(SLOW, max_examples=100)
@given(
    seed=st.integers(0, 1 << 32),
    cuts=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), min_size=1, max_size=4),
    passed=st.integers(0, 5),
    gone=st.sampled_from([set(), {2}, {1, 2, 3}]),
)
def test_merging_neighbours_changes_nothing_that_is_to_be_delivered(
    seed: int, cuts: list[tuple[int, int]], passed: int, gone: set[int]
) -> None:
    fills, files = life(Random(seed), 6), fake_files()
    with small_pieces():
        now = [fill.write(files) for fill in fills]
        first_hour = hour_of(NOON) + passed
        for low, count in cuts:
            inputs = now[low : low + count]
            if inputs:
                merged = merge(files, inputs, FOLDER, first_hour, lambda one: one not in gone)
                now[low : low + count] = [] if merged is None else [merged]
        contents = [content(file) for file in now]

    def needed(due: int, subject_id: int) -> bool:
        return hour_of(due) >= first_hour and subject_id not in gone

    expected = {key: one for key, one in alive(fills).items() if needed(one.due, one.subject_id)}
    found = alive(contents)
    assert {k: one for k, one in found.items() if needed(one.due, one.subject_id)} == expected
    words, now_words = newest(fills), newest(contents)
    for key, word in words.items():
        found_word = now_words.get(key)
        if needed(word.keep, key[0]):
            assert found_word == word
        else:
            assert found_word is None or not needed(found_word.keep, key[0])
    assert now_words.keys() <= words.keys()


@settings(SLOW, max_examples=40)
@given(seed=st.integers(0, 1 << 32), passed=st.integers(0, 5))
def test_what_nobody_needs_is_not_in_the_merged_file(seed: int, passed: int) -> None:
    fills, files = life(Random(seed), 5), fake_files()
    first_hour = hour_of(NOON) + passed
    with small_pieces():
        merged = merge(
            files, [fill.write(files) for fill in fills], FOLDER, first_hour, lambda one: one != 2
        )
        found = content(merged) if merged else Fill((0, 0))
    expected = [
        one
        for one in alive(fills).values()
        if one.subject_id != 2 and hour_of(one.due) >= first_hour
    ]
    assert found.parked == sorted(expected)
    assert all(one.schedule_id < 1000 for one in found.tombstones)
    assert (merged is None) == (not found.parked and not found.tombstones and not found.names)
    if merged is not None:
        assert merged.stretch == (1000, 6000)
        assert merged.hours()[0] >= first_hour
    assert [name for name in files.listdir(FOLDER) if name.endswith(".tmp")] == []


def test_a_tombstone_stays_until_its_message_cannot_be_in_an_older_file() -> None:
    files = fake_files()
    oldest = Fill((0, 10), [parked(NOON, 1), parked(NOON, 2)])
    others = [Fill((10, 20), [], [Tombstone(NOON, 1, 1)]), Fill((20, 30), [parked(NOON, 25)])]
    old = oldest.write(files)
    young = merge(files, [one.write(files) for one in others], FOLDER, 0, lambda _: True)
    assert young is not None
    assert tombstones_of(young) == [Tombstone(NOON, 1, 1)]
    one = merge(files, [old, young], FOLDER, 0, lambda _: True)
    assert one is not None
    assert [one.schedule_id for one in messages_of(one)] == [2, 25]
    assert tombstones_of(one) == []


def test_the_name_of_a_message_that_was_taken_out_does_not_say_that_it_waits() -> None:
    """Its tombstone is gone with it, and nothing else would tell."""
    files = fake_files()
    messages = [parked(NOON, schedule_id, 1, b"%d" % schedule_id) for schedule_id in (1, 2, 3, 4)]
    old = Fill(
        (0, 10),
        messages,
        [],
        [Name(1, b"%d" % schedule_id, schedule_id, NOON, PENDING) for schedule_id in (1, 2)],
    )
    old.names += [Name(1, b"3", 3, NOON, MOVED), Name(1, b"4", 4, NOON, PENDING)]
    struck = [Tombstone(NOON, schedule_id, 1) for schedule_id in (1, 2, 3)]
    new = Fill((10, 20), [], struck, [Name(1, b"1", 1, NOON, CANCELLED)])
    merged = merge(files, [old.write(files), new.write(files)], FOLDER, 0, lambda _: True)
    assert merged is not None
    assert [one.schedule_id for one in messages_of(merged)] == [4]
    found = [merged.find(1, b"%d" % schedule_id) for schedule_id in (1, 2, 3, 4)]
    assert [one.status for one in found if one] == [CANCELLED, DELIVERED, DELIVERED, PENDING]


def test_a_damaged_table_ends_a_merge_and_a_damaged_record_is_carried_along() -> None:
    files = fake_files()
    fill, other = Fill((0, 10), [parked(NOON, 1), parked(NOON, 2)]), Fill((10, 20))
    other.parked.append(parked(NOON, 12))
    path = fill.write(files).path
    inputs = [ScheduleFile(files, path), other.write(files)]
    whole = bytearray(files.content(path))
    record_size = len(fill.parked[0].record)

    files.damage(path, bytes([*whole[:40], whole[40] ^ 1, *whole[41:]]))
    merged = merge(files, inputs, FOLDER, 0, lambda _: True)
    assert merged is not None
    assert merged.read(record_size, record_size) == fill.parked[1].record
    with pytest.raises(ScheduleDamaged, match="record at byte 0"):
        merged.read(0, record_size)

    at = 2 * record_size + 5
    files.damage(path, bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]))
    before = files.listdir(FOLDER)
    with pytest.raises(ScheduleDamaged, match="tables, block 0"):
        merge(files, [ScheduleFile(files, path), inputs[1]], FOLDER, 0, lambda _: True)
    assert files.listdir(FOLDER) == before


def test_a_merge_of_one_file_does_not_take_the_place_of_the_old_one() -> None:
    """The manifest still names the old one when the power fails."""
    files = fake_files()
    old = Fill((0, 10), [parked(NOON, 1), parked(NOON + HOUR_MS, 2)]).write(files)
    new = merge(files, [old], FOLDER, hour_of(NOON) + 1, lambda _: True)
    assert new is not None
    assert (old.number, new.number) == (0, 1)
    assert len(messages_of(ScheduleFile(files, old.path))) == 2
    files.unlink(old.path)
    assert [one.schedule_id for one in messages_of(new)] == [2]


def test_memory_stays_the_same_whatever_is_merged(tmp_path: Path) -> None:
    """Three files of 8 MB, each all in one row, with named messages and cancels."""
    files, count = RealFiles(), 3000
    inputs = []
    for k in range(3):
        fill = Fill((k * 1_000_000, (k + 1) * 1_000_000))
        for i in range(count):
            schedule_id = k * 1_000_000 + i
            record = parked(NOON, i, 1, b"name", 1).record
            big = bytes(record) + bytes(2500)
            fill.parked.append(Parked(NOON + i % 997, schedule_id, 1, big))
            fill.names.append(Name(1, b"%d/%d" % (k, i), schedule_id, NOON, PENDING))
        if k:
            fill.tombstones += [Tombstone(NOON + i % 997, i, 1) for i in range(k, count, 7)]
        inputs.append(fill.write(files, tmp_path))
        del fill
    with patch.object(merging, "HELD", 1 << 18):
        tracemalloc.start()
        merged = merge(files, inputs, tmp_path, 0, lambda _: True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert merged is not None
    assert merged.size > 20_000_000
    assert peak < 12_000_000
    for file in (*inputs, merged):
        file.close()


def test_a_merge_that_fails_for_want_of_room_leaves_nothing_and_goes_well_later() -> None:
    files = fake_files()
    inputs = [fill.write(files) for fill in life(Random(3), 4)]
    before, used = sorted(files.listdir(FOLDER)), files.used()
    files.capacity = used
    with small_pieces(), pytest.raises(OSError, match="No space"):
        merge(files, inputs, FOLDER, 0, lambda _: True)
    assert sorted(files.listdir(FOLDER)) == before
    assert files.used() == used
    files.heal()
    assert merge(files, inputs, FOLDER, 0, lambda _: True) is not None


# Planning


def weighed(*sizes: int) -> list[Weighed]:
    return [Weighed(size, 0) for size in sizes]


def test_files_that_are_small_are_merged_eight_at_a_time() -> None:
    assert plan_merge([]) is None
    assert plan_merge(weighed(*[1] * 7)) is None
    assert plan_merge(weighed(*[1] * 8)) == range(8)
    assert plan_merge(weighed(100, *[1] * 7)) is None
    assert plan_merge(weighed(100, *[1] * 8)) == range(1, 9)
    assert plan_merge(weighed(100, *[9] * 8, 1)) == range(2, 10)


def test_a_file_that_has_mostly_passed_is_recreated_alone() -> None:
    files = weighed(*[10] * 8)
    files[3] = Weighed(10, 6)
    assert plan_merge(files) == range(3, 4)
    files[3] = Weighed(10, 5)
    assert plan_merge(files) == range(8)


@settings(SLOW, max_examples=40)
@given(st.lists(st.integers(100, 10_000), min_size=1, max_size=300))
def test_files_stay_few_and_a_message_is_copied_a_few_times(sizes: Sequence[int]) -> None:
    files: list[Weighed] = []
    copied = 0
    for size in sizes:
        files.append(Weighed(size, 0))
        while (plan := plan_merge(files)) is not None:
            total = sum(one.size for one in files[plan.start : plan.stop])
            copied += total
            files[plan.start : plan.stop] = [Weighed(total, 0)]
    assert len(files) < 30
    assert copied <= 5 * sum(sizes)
