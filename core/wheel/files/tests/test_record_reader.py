"""Records that are read from the wrong place of the log must not be taken for damaged, and lost."""

from kumquat.core.wheel.tests.delays import START, Disk, at, run, running

COUNT = 120


def test_neighbours_in_two_segments_are_not_read_as_if_in_one(disk: Disk) -> None:
    """Until it is cut off, the room that was reserved behind the end of a segment reads as zeros."""

    async def story() -> None:
        due = START + 60_000
        async with running(disk, segment_bytes=16 << 10, reserve_bytes=64 << 10) as broker:
            values = [b"%d " % number * 100 for number in range(COUNT)]
            for number, value in enumerate(values):
                await broker.park("s", at(value, due + number))
            *sealed, _ = broker.log.log.state.segments
            assert sealed
            for segment in sealed:
                fd = disk.files.open(segment.path)
                disk.files.reserve(fd, segment.size, 64 << 10)
                disk.files.close(fd)
            await broker.wait_until_idle()
            assert broker.delay.statistics().damaged == 0
            assert [record.value for record in await broker.messages("s")] == values

    run(story)
