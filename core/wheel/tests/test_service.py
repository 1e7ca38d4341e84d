"""The running service: what is parked arrives when it is due, once, in order, and not before."""

from kumquat.core.wheel.tests.delays import (
    HOUR,
    START,
    Disk,
    at,
    due_of,
    later,
    plain,
    run,
    running,
)


def test_a_message_is_delivered_when_it_is_due_and_not_before(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            appended = await broker.park("s", later(b"later", 1_500))
            assert appended.base_sequence == -1
            [record] = await broker.wait_for("s", 1)
            assert record.value == b"later"
            assert dict(record.headers).keys() == {"qmq-due-ms", "qmq-created-ms"}
            assert record.timestamp >= due_of(record) >= START + 1_500
            statistics = broker.delay.statistics()
            assert (statistics.pending, statistics.scheduled, statistics.delivered) == (0, 1, 1)
            assert statistics.lateness.delivered == 1

    run(story)


def test_a_mixed_batch_keeps_the_offsets_of_what_is_plain(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            appended = await broker.park("s", plain(b"a"), later(b"b", 700), plain(b"c"))
            assert appended.base_sequence == 0
            records = await broker.wait_for("s", 3)
            assert [(r.offset, r.value) for r in records] == [(0, b"a"), (2, b"c"), (3, b"b")]

    run(story)


def test_messages_beyond_the_window_are_loaded_in_time_over_restarts(disk: Disk) -> None:
    async def story() -> None:
        dues = [
            START + hours * HOUR + minutes * 60_000 for hours in range(4) for minutes in (1, 59)
        ]
        async with running(disk) as broker:
            for due in reversed(dues):
                await broker.park("s", at(b"%d" % due, due))
        for number, due in enumerate(dues, 1):
            disk.clock.jump_to(due - 2_000)
            async with running(disk) as broker:
                records = await broker.wait_for("s", number)
                assert len(records) == number
        async with running(disk) as broker:
            records = await broker.messages("s")
            assert [due_of(record) for record in records] == dues
            assert all(record.timestamp >= due_of(record) for record in records)
            assert broker.delay.statistics().pending == 0

    run(story)
