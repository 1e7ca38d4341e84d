"""ShareFetch and ShareAcknowledge from clients that are mistaken, or mean harm: what others would feel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.progress import Progress
from kumquat.gateway.shares.tests.consumers import ACCEPT, Consumer, consumer, fetched, got, prepare
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.tests.members import sharing

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def send(served: Served, topic: str, *messages: bytes) -> None:
    async with served.client() as client:
        answer = await client.call(produce(topic, *messages), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_share_fetch_in_the_name_of_a_classic_member_that_fails_or_takes_its_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await prepare(served, group="classic")
        await send(served, "t", *[b"%d" % i for i in range(40)])
        async with sharing(served, "classic", "t", 2) as members:
            taken = await members[0].fetch()
            assert taken
            topic_id = served.broker.log.subjects.by_name["t"].topic_id
            groups = served.broker.coordinator.groups
            (log,) = [
                log
                for progress in groups.by_name["classic"].progress.values()
                for log in progress.pull_logs.values()
                if log.leases
            ]
            async with served.client() as client:
                stranger = Consumer(client, topic_id, log.member_id, "classic")
                assert got(await stranger.fetch()) == {}
                assert (await stranger.fetch(epoch=-1)).error_code == 0
                stranger.epoch = 0
                assert got(await stranger.fetch()) == {}
            await served.settled()
            assert log.unacked == len(taken)
        assert not caplog.records, caplog.text

    serve(check, tmp_path)


def test_thousands_of_acknowledgements_of_what_is_done_that_each_look_at_all_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    lowest = Progress.lowest_unacked

    def counted(self: Progress) -> int | None:
        nonlocal looks
        looks += 1
        return lowest(self)

    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", *[b"x"] * 50)
        async with consumer(served, "ann") as ann:
            await fetched(ann, 50)
            assert await ann.acked((0, 48, [ACCEPT])) == 0
            monkeypatch.setattr(Progress, "lowest_unacked", counted)
            assert await ann.acked(*[(i, i, [ACCEPT]) for i in range(50)]) == 0
            assert looks == 1

    serve(check, tmp_path)
