"""The wheel against a sorted list, and the shapes of load that could make it forget, repeat or mix up."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kumquat.core.wheel.format import ENTRY, NAMED
from kumquat.core.wheel.schedule import wheel as wheel_module
from kumquat.core.wheel.schedule.entries import LOG, Entry
from kumquat.core.wheel.schedule.wheel import Wheel

BASE = 1_700_000_000_000

DUES = st.integers(BASE, BASE + 3_000)


class WheelMachine(RuleBasedStateMachine):
    """Entries come from the log and from files, are given, delivered, cancelled and moved in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.wheel = Wheel()
        self.waiting: dict[int, Entry] = {}
        """What is in the wheel and was not given, by schedule_id."""
        self.named: set[int] = set()
        self.at_hand: dict[int, Entry] = {}
        self.passed_over = False
        self.next_schedule_id = 100

    def _schedule_ids(self, count: int) -> list[int]:
        first, self.next_schedule_id = self.next_schedule_id, self.next_schedule_id + 10 * count
        return list(range(first, self.next_schedule_id, 10))

    @rule(due=DUES, named=st.booleans(), subject=st.integers(1, 3))
    def add(self, due: int, named: bool, subject: int) -> None:
        (schedule_id,) = self._schedule_ids(1)
        self.wheel.add(due, schedule_id, schedule_id + 1, subject, named)
        self.waiting[schedule_id] = Entry(due, schedule_id, 0, schedule_id + 1, subject, LOG)
        self.named.update([schedule_id] if named else [])

    @rule(dues=st.lists(DUES, max_size=20), flags=st.one_of(st.none(), st.integers(0, 1 << 20)))
    def add_many(self, dues: list[int], flags: int | None) -> None:
        schedule_ids = self._schedule_ids(len(dues))
        lengths = [schedule_id % 1000 for schedule_id in schedule_ids]
        named = None if flags is None else [bool(flags >> i & 1) for i in range(len(dues))]
        for i, schedule_id in enumerate(schedule_ids):
            self.wheel.add(dues[i], schedule_id, lengths[i], 4, named is not None and named[i])
            self.waiting[schedule_id] = Entry(dues[i], schedule_id, 0, lengths[i], 4, LOG)
            self.named.update([schedule_id] if named and named[i] else [])

    @rule(
        dues=st.lists(DUES, max_size=30).map(sorted),
        number=st.integers(0, 3),
        flags=st.integers(0, 1 << 30),
    )
    def add_table(self, dues: list[int], number: int, flags: int) -> None:
        table = b""
        for i, (due, schedule_id) in enumerate(
            zip(dues, self._schedule_ids(len(dues)), strict=True)
        ):
            named = flags >> i & 1
            table += ENTRY.pack(
                due, schedule_id, schedule_id * 7, schedule_id % 500 | named * NAMED, 5
            )
            self.waiting[schedule_id] = Entry(
                due, schedule_id, schedule_id * 7, schedule_id % 500, 5, number
            )
            self.named.update([schedule_id] if named else [])
        self.wheel.add_table(number, table)

    @rule(until=DUES)
    def sort_some(self, until: int) -> None:
        self.wheel.sort_some(until)

    @rule(until=DUES)
    def next_key(self, until: int) -> None:
        found = self.wheel.next_key(until)
        expected = min((s[:2] for s in self.waiting.values() if s.due < until), default=None)
        if self.passed_over:
            assert expected is None or (found is not None and found <= expected)
        else:
            assert found == expected

    @rule(until=DUES, most=st.integers(1, 12))
    def prepare(self, until: int, most: int) -> None:
        entries = self.wheel.take(until, most)
        expected = sorted(entry for entry in self.waiting.values() if entry.due < until)
        assert entries == expected[: len(entries)]
        assert bool(entries) == bool(expected)
        for entry in entries:
            self.at_hand[entry.schedule_id] = entry
            del self.waiting[entry.schedule_id]

    @precondition(lambda self: self.at_hand)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        schedule_ids = data.draw(st.lists(st.sampled_from(sorted(self.at_hand)), unique=True))
        self.wheel.delivered(schedule_ids)
        for schedule_id in schedule_ids:
            del self.at_hand[schedule_id]
            self.named.discard(schedule_id)

    @precondition(lambda self: self.at_hand or self.waiting)
    @rule(data=st.data(), moved_to=st.one_of(st.none(), DUES))
    def cancel_or_move(self, data: st.DataObject, moved_to: int | None) -> None:
        both = {**self.at_hand, **self.waiting}
        schedule_id = data.draw(st.sampled_from(sorted(both)))
        entry, named = both[schedule_id], schedule_id in self.named
        assert self.wheel.cancel(schedule_id, entry.due)
        assert not self.wheel.cancel(schedule_id, entry.due)
        self.at_hand.pop(schedule_id, None)
        self.waiting.pop(schedule_id, None)
        self.named.discard(schedule_id)
        assert self.wheel.still([entry]) == []
        self.passed_over = True
        if moved_to is not None and entry.source == LOG:
            (new,) = self._schedule_ids(1)
            self.wheel.add(moved_to, new, entry.length, entry.subject_id, named)
            self.waiting[new] = entry._replace(due=moved_to, schedule_id=new)
            self.named.update([new] if named else [])

    @rule(due=DUES, schedule_id=st.integers(100, 2_000))
    def cancel_what_is_not_there(self, due: int, schedule_id: int) -> None:
        if schedule_id not in self.waiting and schedule_id not in self.at_hand:
            assert not self.wheel.cancel(schedule_id, due)

    @invariant()
    def it_is_as_the_list(self) -> None:
        wheel, both = self.wheel, [*self.waiting.values(), *self.at_hand.values()]
        assert wheel.count == len(both)
        assert {
            schedule_id
            for schedule_id in range(100, self.next_schedule_id, 10)
            if wheel.holds(schedule_id)
        } == self.named
        assert sorted(wheel.still(both)) == sorted(self.at_hand.values())
        expected = min((entry.due for entry in self.waiting.values()), default=None)
        found = wheel.next_due()
        if self.passed_over:
            assert expected is None or (found is not None and found <= expected)
        else:
            assert found == expected
        assert wheel.files_in_use() >= {entry.source for entry in both} - {LOG}
        floor = wheel.log_floor()
        schedule_ids = [entry.schedule_id for entry in both if entry.source == LOG]
        assert not schedule_ids or (floor is not None and floor <= min(schedule_ids))


def test_nothing_is_lost_repeated_or_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_module, "RUN", 4)
    run_state_machine_as_test(WheelMachine, settings=settings(deadline=None))


def test_an_instant_with_many_messages_is_given_in_order_of_scheduling_and_in_bounded_parts() -> (
    None
):
    wheel = Wheel()
    schedule_ids = list(range(1_000, 41_000))
    for schedule_id in schedule_ids[1::2]:
        wheel.add(BASE + 7, schedule_id, 1, 1, False)
    table = b"".join(
        ENTRY.pack(BASE + 7, schedule_id, 0, 1, 2) for schedule_id in schedule_ids[0::2]
    )
    wheel.add_table(9, table)
    given: list[int] = []
    while entries := wheel.take(BASE + 8, 1_000):
        assert 1 <= len(entries) <= 1_000
        given += [entry.schedule_id for entry in entries]
    assert given == schedule_ids
    wheel.delivered(given)
    assert (wheel.count, wheel.next_due(), wheel.log_floor()) == (0, None, None)
    assert wheel.files_in_use() == set()


def test_runs_that_lie_far_apart_do_not_cut_the_parts_to_pieces() -> None:
    """One source after the other in time: each part is full although one run alone gives it."""
    wheel = Wheel()
    for number in range(40):
        table = (ENTRY.pack(BASE + number, number * 1_000 + i, 0, 1, 1) for i in range(1_000))
        wheel.add_table(number, b"".join(table))
    sizes = []
    while entries := wheel.take(BASE + 500, 4_000):
        sizes.append(len(entries))
    assert sum(sizes) == 40_000
    assert all(size >= 1_500 for size in sizes[:-1])


def test_a_message_for_the_notch_at_hand_is_given_before_later_ones() -> None:
    wheel = Wheel()
    wheel.add(BASE + 10, 1, 1, 1, False)
    wheel.add(BASE + 300, 2, 1, 1, False)
    assert [entry.schedule_id for entry in wheel.take(BASE + 100)] == [1]
    wheel.add(BASE + 200, 3, 1, 1, False)
    assert wheel.next_due() == BASE + 200
    assert [entry.schedule_id for entry in wheel.take(BASE + 500)] == [3, 2]


def test_a_message_cancelled_twice_is_counted_once() -> None:
    wheel = Wheel()
    wheel.add(BASE, 1, 1, 1, False)
    wheel.add(BASE, 2, 1, 1, False)
    assert wheel.cancel(1, BASE)
    assert not wheel.cancel(1, BASE)
    assert wheel.count == 1
    assert [entry.schedule_id for entry in wheel.take(BASE + 1)] == [2]
    assert wheel.cancel(2, BASE)
    assert not wheel.cancel(2, BASE)
    assert wheel.count == 0
