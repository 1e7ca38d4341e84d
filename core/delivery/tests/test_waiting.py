"""Waiting retries against a dict: whatever is added, cut, taken and copied, each message waits once."""

from __future__ import annotations

import tracemalloc
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kumquat.core.delivery import waiting
from kumquat.core.delivery.waiting import Wait, Waiting

Model = dict[int, tuple[int, int, int]]
"""Sequence → attempt, due, since."""
SEQUENCES = st.integers(0, 120)
DUES = st.integers(0, 40)


def messages(entries: Any) -> Model:
    found: Model = {}
    for entry in entries:
        for sequence in range(entry.first, entry.end):
            assert sequence not in found
            found[sequence] = (entry.attempt, entry.due, entry.since)
    return found


def check(waiting: Waiting, model: Model) -> None:
    entries = list(waiting)
    assert messages(entries) == model
    assert [e.first for e in entries] == sorted(e.first for e in entries)
    assert len(waiting) == len(entries)
    assert waiting.total == len(model)
    assert waiting.lowest == min(model, default=None)
    assert waiting.next_due == min((due for _, due, _ in model.values()), default=None)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.model = Waiting(), Model()
        self.copies: list[tuple[Waiting, Model]] = []

    @rule(
        first=SEQUENCES,
        size=st.integers(1, 9),
        attempt=st.integers(2, 3),
        due=DUES,
        since=st.integers(0, 1),
    )
    def add(self, first: int, size: int, attempt: int, due: int, since: int) -> None:
        while size and any(sequence in self.model for sequence in range(first, first + size)):
            size -= 1
        if size:
            self.waiting.add(first, size, attempt, due, since)
            self.model |= dict.fromkeys(range(first, first + size), (attempt, due, since))

    @rule(first=SEQUENCES, count=st.integers(1, 30), due=DUES)
    def add_apart(self, first: int, count: int, due: int) -> None:
        """Entries that cannot become one."""
        for n in range(count):
            self.add(first + 2 * n, 1, 2, due + n % 3, 0)

    @rule(first=SEQUENCES, size=st.integers(0, 60))
    def cut(self, first: int, size: int) -> None:
        taken = self.waiting.cut(first, first + size)
        assert [e.first for e in taken] == sorted(e.first for e in taken)
        expected = {s: self.model.pop(s) for s in range(first, first + size) if s in self.model}
        assert messages(taken) == expected

    @rule(first=SEQUENCES, size=st.integers(0, 200))
    def drop(self, first: int, size: int) -> None:
        gone = [s for s in range(first, first + size) if self.model.pop(s, None) is not None]
        assert self.waiting.drop(first, first + size) == len(gone)

    @rule(sequence=SEQUENCES)
    def count_below(self, sequence: int) -> None:
        assert self.waiting.count_below(sequence) == sum(s < sequence for s in self.model)

    @rule(now=DUES, most=st.integers(0, 20))
    def due(self, now: int, most: int) -> None:
        ripe = {s: v for s, v in self.model.items() if v[1] <= now}
        taken = self.waiting.due(now, most)
        found = messages(taken)
        assert found.items() <= ripe.items()
        for sequence in found:
            del self.model[sequence]
        if len(taken) < most:
            assert found == ripe
        elif taken:  # what was due the longest is never left behind
            assert min(v[1] for v in ripe.values()) in {v[1] for v in found.values()}

    @rule()
    def copy(self) -> None:
        self.copies.append((self.waiting.copy(), self.model.copy()))

    @rule()
    def go_back(self) -> None:
        if self.copies:
            self.waiting, self.model = self.copies.pop()

    @rule()
    def write_in_a_copy(self) -> None:
        if self.copies:
            copied, model = self.copies[-1]
            copied.cut(10, 50)
            for sequence in range(10, 50):
                model.pop(sequence, None)

    @rule()
    def restart(self) -> None:
        self.waiting = Waiting.unpack(self.waiting.pack())

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        check(self.waiting, self.model)
        for copied, model in self.copies:
            check(copied, model)
        blocks = self.waiting._table.blocks
        assert all(0 < len(block.firsts) <= waiting.LIMIT for block in blocks)


@pytest.mark.parametrize("limit", [2, 5, 256])
def test_each_message_waits_once_whatever_happens(limit: int) -> None:
    """Small blocks, because few entries are to split and empty them often."""
    with mock.patch.object(waiting, "LIMIT", limit), mock.patch.object(waiting, "FEW", 3):
        run_state_machine_as_test(Machine, settings=settings(deadline=None))


NUMBERS = st.integers(0, (1 << 63) - 1)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 62),
            st.integers(1, waiting.MAX_SIZE),
            st.integers(0, (1 << 32) - 1),
            NUMBERS,
            NUMBERS,
        ),
        max_size=20,
    )
)
def test_numbers_of_any_size_come_back_from_a_snapshot(
    given: list[tuple[int, int, int, int, int]],
) -> None:
    kept, end = Waiting(), 0
    for first, size, attempt, due, since in sorted(given):
        if first >= end:
            kept.add(first, size, attempt, due, since)
            end = first + size
    again = Waiting.unpack(kept.pack())
    assert list(again) == list(kept)
    assert (len(again), again.total, again.next_due) == (len(kept), kept.total, kept.next_due)


@pytest.mark.parametrize(
    "wrong",
    [
        (-1, 1, 2, 5, 5),
        (1 << 63, 1, 2, 5, 5),
        (1, 0, 2, 5, 5),
        (1, 1 << 32, 2, 5, 5),
        (1, 1, 1 << 32, 5, 5),
        (1, 1, -1, 5, 5),
        (1, 1, 2, -5, 5),
        (1, 1, 2, 5, 1 << 63),
    ],
)
def test_numbers_that_do_not_fit_change_nothing(wrong: tuple[int, int, int, int, int]) -> None:
    kept = Waiting()
    kept.add(7, 1, 2, 3, 4)
    with pytest.raises(ValueError, match="cannot wait"):
        kept.add(*wrong)
    assert list(kept) == [Wait(7, 1, 2, 3, 4)]


def test_neighbours_never_become_larger_than_an_entry_can_be() -> None:
    kept = Waiting()
    kept.add(0, waiting.MAX_SIZE, 2, 3, 4)
    kept.add(waiting.MAX_SIZE, 1, 2, 3, 4)
    assert [entry.size for entry in kept] == [waiting.MAX_SIZE, 1]


def test_neighbours_that_differ_in_nothing_are_one_entry() -> None:
    kept = Waiting()
    for first in (0, 20, 10):
        kept.add(first, 10, 2, 3, 4)
    assert list(kept) == [Wait(0, 30, 2, 3, 4)]


@pytest.mark.parametrize("garbled", [b"", b"\1", b"\2" * 40, b"\1\3\0\0\0garbage"])
def test_a_garbled_snapshot_is_refused(garbled: bytes) -> None:
    with pytest.raises(ValueError, match=r"waiting retries"):
        Waiting.unpack(garbled)


def test_half_a_snapshot_is_refused() -> None:
    kept = Waiting()
    kept.add(7, 1, 2, 3, 4)
    with pytest.raises(ValueError, match="waiting retries"):
        Waiting.unpack(kept.pack()[:-1])


def test_a_count_that_does_not_fit_the_entries_is_refused() -> None:
    kept = Waiting()
    kept.add(7, 1, 2, 3, 4)
    packed = bytearray(kept.pack())
    packed[1] = 2
    with pytest.raises(ValueError, match="are not 2 entries"):
        Waiting.unpack(bytes(packed))


@pytest.mark.parametrize("step", [3, -3], ids=["rising", "falling"])
def test_waiting_retries_take_less_than_64_bytes_each(step: int) -> None:
    """So a million of them fit into 64 MB. Those that fail in falling order leave blocks half empty."""
    count = 20_000
    kept = Waiting()
    tracemalloc.start()
    try:
        for n in range(count):
            kept.add(10**9 + n * step, 1, 2 + n % 5, 1_790_000_000_000 + n, 1_780_000_000_000 + n)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == count
    assert taken / count < 64


def test_a_copy_takes_no_memory_until_somebody_writes() -> None:
    kept = Waiting()
    for n in range(10_000):
        kept.add(3 * n, 1, 2, n, n)
    copied = kept.copy()
    assert all(a is b for a, b in zip(kept._table.blocks, copied._table.blocks, strict=True))
    copied.cut(0, 1)
    same = [a is b for a, b in zip(kept._table.blocks, copied._table.blocks, strict=True)]
    assert same.count(False) == 1
