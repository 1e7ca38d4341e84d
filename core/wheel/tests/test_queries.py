"""Counting and listing against a plain list, wherever the messages are: in files, in the log, delivered."""

from random import Random

import pytest
import trio

from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.wheel import queries
from kumquat.core.wheel.files.writing import merge
from kumquat.core.wheel.service import Cursor, DelayOptions, open_with_delay
from kumquat.core.wheel.tasks import filler
from kumquat.core.wheel.tests.delays import HOUR, START, Broker, Disk, at, cancel, run, running

EVER = (1 << 63) - 1


async def listed(
    broker: Broker, name: str | None, due_from: int, due_to: int, limit: int
) -> list[tuple[str, int, str | None]]:
    """All pages."""
    subject = None if name is None else broker.subject(name)
    found: list[tuple[str, int, str | None]] = []
    after: Cursor | None = None
    while True:
        page = await broker.delay.list(subject, due_from, due_to, after, limit)
        assert len(page.items) <= limit
        found += [(item.subject, item.due, item.delay_id) for item in page.items]
        if page.next is None:
            return found
        assert len(page.items) == limit
        after = page.next


@pytest.mark.parametrize("seed", range(3))
def test_counts_and_lists_are_what_a_plain_list_says(
    monkeypatch: pytest.MonkeyPatch, disk: Disk, seed: int
) -> None:
    monkeypatch.setattr(filler, "FILL_BYTES", 1_500)
    monkeypatch.setattr(queries, "_PIECE", 3)
    monkeypatch.setattr(queries, "_READ_RECENT", 900 if seed else 1 << 20)
    monkeypatch.setattr(merge, "AT_ONCE", 3)
    rng = Random(seed)
    pending: dict[str, tuple[str, int]] = {}

    async def check(broker: Broker) -> None:
        bounds = sorted(START + rng.randrange(6 * HOUR) for _ in range(2))
        for name in ("a", "b", None):
            for due_from, due_to in ((0, EVER), (bounds[0], bounds[1]), (bounds[0], EVER)):
                subject = None if name is None else broker.subject(name)
                expected = sorted(
                    (due, of, i)
                    for i, (of, due) in pending.items()
                    if name in (None, of) and due_from <= due < due_to
                )
                found = await listed(broker, name, due_from, due_to, rng.choice((1, 4, 50)))
                assert sorted((due, of, i or "") for of, due, i in found) == expected
                assert [due for _, due, _ in found] == [due for due, _, _ in expected]
                assert await broker.delay.count(subject, due_from, due_to) == len(expected)

    async def story() -> None:
        for start in range(3):
            async with running(disk, segment_bytes=8_000) as broker:
                for number in range(12):
                    name = rng.choice("ab")
                    due = [START + rng.randrange(6 * HOUR // 60_000) * 60_000 for _ in range(5)]
                    ids = [f"{start}-{number}-{i}" for i in range(5)]
                    sent = [at(b"v", d, i.encode()) for d, i in zip(due, ids, strict=True)]
                    await broker.park(name, *sent)
                    now = broker.clock.now_ms()
                    pending.update({i: (name, max(d, now)) for i, d in zip(ids, due, strict=True)})
                    victim = rng.choice(sorted(pending))
                    if pending[victim][1] > now + 60_000:
                        await broker.park(pending.pop(victim)[0], cancel(victim.encode()))
                disk.clock.jump(HOUR)
                await trio.sleep(3)
                now = broker.clock.now_ms()
                for gone in [i for i, (_, due) in pending.items() if due <= now]:
                    del pending[gone]
                await check(broker)
                await trio.sleep(5)
                await check(broker)
            async with running(disk) as broker:
                await check(broker)

    run(story)


def test_a_page_tells_key_size_and_when_it_was_made(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", at(b"twelve bytes", START + HOUR))
            [item] = (await broker.delay.list(None, 0, EVER, None, 5)).items
            assert (item.subject, item.key, item.size, item.delay_id) == ("s", b"key", 12, None)
            assert (item.due, item.created >= START) == (START + HOUR, True)

    run(story)


def test_deleted_subjects_are_neither_counted_nor_listed(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", at(b"x", START + 5 * HOUR))
            await broker.park("t", at(b"y", START + 5 * HOUR))
        async with running(disk) as broker:
            broker.log.delete_subject_nowait(broker.subject("s"))
            assert len((await broker.delay.list(None, 0, EVER, None, 5)).items) == 1
            assert await broker.delay.count(None, 0, EVER) == 1
            assert await broker.delay.count(None, 1, EVER) == 1

    run(story)


def test_what_was_delivered_since_the_last_fill_is_not_counted_again_after_a_crash(
    disk: Disk,
) -> None:
    """The files still hold it, and only frames of the log say that it is delivered, by schedule id."""

    async def story() -> None:
        async with running(disk) as broker:
            due = [START + HOUR, START + HOUR + 1, START + 5 * HOUR]
            await broker.park("s", *(at(b"%d" % one, one) for one in due))
        disk.clock.jump(2 * HOUR)
        async with running(disk) as broker:
            await broker.wait_for("s", 2)
            left = Disk(disk.files.after_kill())
            left.clock = disk.clock
        message_log, delay = open_with_delay(
            LogOptions(directory=left.directory), DelayOptions(), left.files, left.clock.now_ms
        )
        delay.recount()  # before anything is loaded
        assert delay.statistics().pending == 1
        async with trio.open_nursery() as nursery:  # to close it
            await nursery.start(message_log.run)
            nursery.cancel_scope.cancel()

    run(story)
