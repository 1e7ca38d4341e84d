"""Clocks that are set, machines that sleep, many messages in one instant, more than fit into memory."""

from itertools import pairwise

import pytest
import trio

from kumquat.core.wheel.schedule import delivery_queue
from kumquat.core.wheel.tasks import loader
from kumquat.core.wheel.tests.delays import (
    HOUR,
    START,
    Disk,
    at,
    due_of,
    later,
    run,
    running,
)


def test_a_clock_that_leaps_an_hour_ahead_brings_what_is_due_then_and_no_more(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"soon", HOUR - 60_000), later(b"late", 3 * HOUR))
            disk.clock.jump(HOUR)
            [record] = await broker.wait_for("s", 1)
            assert record.value == b"soon"
            await trio.sleep(2)
            assert broker.delay.statistics().pending == 1

    run(story)


def test_a_clock_that_goes_back_an_hour_makes_nothing_early_and_nothing_twice(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"first", 400), later(b"second", 30_000))
            await broker.wait_for("s", 1)
            disk.clock.jump(-HOUR)
            await broker.park("s", later(b"third", 1_000))
            records = await broker.wait_for("s", 2)
            assert [record.value for record in records] == [b"first", b"third"]
        async with running(disk) as broker:
            assert len(await broker.messages("s")) == 2
            disk.clock.jump(HOUR)
            records = await broker.wait_for("s", 3)
            assert records[2].value == b"second"
            assert all(record.timestamp >= due_of(record) for record in records)
            assert broker.delay.statistics().pending == 0

    run(story)


def test_after_two_hours_of_sleep_what_is_overdue_comes_in_order_of_due_time(disk: Disk) -> None:
    async def story() -> None:
        dues = [START + 10_000 + (i * 7919 % 240) * 30_000 for i in range(240)]
        async with running(disk) as broker:
            for i in range(0, len(dues), 20):
                await broker.park("s", *(at(b"%d" % due, due) for due in dues[i : i + 20]))
            disk.clock.jump(2 * HOUR + 60_000)
            records = await broker.wait_for("s", len(dues))
            found = [due_of(record) for record in records]
            assert found == sorted(dues)

    run(story)


def test_ten_thousand_due_in_one_instant_come_in_order_of_scheduling(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            due = START + 20_000
            numbers = range(10_000)
            for i in range(0, 10_000, 500):
                await broker.park("s", *(at(b"%d" % n, due) for n in numbers[i : i + 500]))
            records = await broker.wait_for("s", 10_000)
            assert [int(record.value or b"") for record in records] == list(numbers)
            assert all(record.timestamp >= due for record in records)

    run(story)


def test_order_holds_over_subjects_of_one_instant_when_little_is_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
    disk: Disk,
) -> None:
    monkeypatch.setattr(delivery_queue, "AHEAD_BYTES", 3_000)
    monkeypatch.setattr(delivery_queue, "AT_HAND", 16)
    monkeypatch.setattr(delivery_queue, "CHUNK", 8)

    async def story() -> None:
        async with running(disk) as broker:
            for i in range(40):
                await broker.park("a" if i % 3 else "b", at(bytes(200) + b"%d" % i, START + 9_000))
            await broker.wait_until_idle()
            for name in "ab":
                values = [int((r.value or b"")[200:]) for r in await broker.messages(name)]
                assert values == sorted(values)
            assert len(await broker.messages("a")) + len(await broker.messages("b")) == 40

    run(story)


def test_what_is_parked_for_the_notch_at_hand_is_not_left_behind(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"0", 450))
            for i in range(1, 30):
                await broker.park("s", later(b"%d" % i, 450 - i * 15))
            records = await broker.wait_for("s", 30)
            assert sorted(int(r.value or b"") for r in records) == list(range(30))
            assert all(record.timestamp >= due_of(record) for record in records)

    run(story)


def test_an_hour_with_more_than_a_slice_is_loaded_in_slices(
    monkeypatch: pytest.MonkeyPatch,
    disk: Disk,
) -> None:
    monkeypatch.setattr(loader, "SLICE", 50)

    async def story() -> None:
        dues = [START + 2 * HOUR + (i * 7919 % 500) * 100 for i in range(500)]
        async with running(disk) as broker:
            for i in range(0, 500, 50):
                await broker.park("s", *(at(b"%d" % due, due) for due in dues[i : i + 50]))
            disk.clock.jump_to(START + 2 * HOUR - 1_000)
            most = 0
            while broker.delay.statistics().pending:
                most = max(most, broker.delay.statistics().loaded)
                await broker.log.wait_for_data([broker.subject("s")], trio.current_time() + 0.5)
            assert 0 < most <= 3 * 50
            records = await broker.wait_for("s", 500)
            assert [due_of(record) for record in records] == sorted(dues)

    run(story)


def test_all_in_one_millisecond_are_loaded_although_they_are_more_than_a_slice(
    monkeypatch: pytest.MonkeyPatch,
    disk: Disk,
) -> None:
    monkeypatch.setattr(loader, "SLICE", 10)

    async def story() -> None:
        due = START + 5 * HOUR
        async with running(disk) as broker:
            await broker.park("s", *(at(b"%d" % i, due + i // 40) for i in range(80)))
        disk.clock.jump_to(due - 500)
        async with running(disk) as broker:
            records = await broker.wait_for("s", 80)
            assert [int(record.value or b"") for record in records] == list(range(80))

    run(story)


def test_deliveries_of_many_hours_leave_no_files_behind(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            for hour in range(12):
                await broker.park("s", later(b"x", hour * HOUR + 60_000))
            for _ in range(12):
                disk.clock.jump(HOUR)
                await trio.sleep(2)
            await broker.wait_for("s", 12)
            await broker.park("s", later(b"y", 20 * HOUR))
            disk.clock.jump(20 * HOUR)
            await broker.wait_until_idle()
        async with running(disk) as broker:
            await trio.sleep(5)
            assert broker.delay.statistics().files <= 2
            records = await broker.messages("s")
            assert all(a.timestamp <= b.timestamp for a, b in pairwise(records))

    run(story)
