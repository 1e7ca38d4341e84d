"""Dead letters in a whole broker: what becomes of messages that nobody handled, and who sees what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import REJECTED
from kumquat.core.delivery.dead_letters.letters import origin_of
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP, Filter
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.records import records_of
from kumquat.gateway.tests.harness import NO_SPACE, Served, serve
from kumquat.gateway.tests.members import sharing
from kumquat.gateway.tests.sharing.test_sharing import fill
from kumquat.gateway.wire import (
    DeleteGroupsRequest,
    HeartbeatRequest,
    ListGroupsRequest,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from kumquat.core.records import Record


def doom(served: Served, group: str, topic: str, first: int, size: int) -> None:
    """As a member does who says that it will never handle them."""
    broker = served.broker
    state, subject_id = broker.actions.groups.by_name[group], broker.log.subjects.by_name[topic].id
    slot = next(iter(state.progress[subject_id].pull_logs))
    broker.sharing.append(
        [actions.Doom(state.id, subject_id, slot, [[first, size, 1]], REJECTED, "no")]
    )


async def reject(served: Served, group: str, topic: str, first: int, size: int) -> None:
    """Until they are dead letters."""
    doom(served, group, topic, first, size)
    await served.settled()


def letters(served: Served, name: str) -> list[Record]:
    log = served.broker.log
    subject = log.subjects.by_name[name]
    batches = Reader(log.log).read(subject, subject.earliest, 1 << 20, True, nowait=False)
    return [record for batch in batches for record in records_of(memoryview(batch), 1 << 20)]


def test_rejected_messages_lie_where_the_group_says_and_are_not_delivered_again(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 10)
        await served.broker.registry.alter_group(
            "g", {"errors.deadletterqueue.topic.name": "{group}.dead"}
        )
        async with sharing(served, "g", "t", 2) as members:
            got = [record for member in members for record in await member.drain()]
            assert len(got) == 10
            await reject(served, "g", "t", 0, 1)
            found = letters(served, "g.dead")
            assert [each.value for each in found] == written[:1]
            assert origin_of(found[0])[:3] == ("t", 0, "g")
        progress = served.broker.actions.groups.by_name["g"].progress[1]
        assert progress.dying == 0
        assert not progress.redelivery.holds(0)
        assert not progress.waiting.cut(0, 1)

    serve(check, tmp_path)


def test_a_letters_subject_takes_larger_messages_also_after_a_restart(
    tmp_path: Path,
) -> None:
    async def die(served: Served) -> None:
        await served.create("t", **{"max.message.bytes": "2000000"})
        await fill(served, "t", 3)
        async with sharing(served, "g", "t", 1) as members:
            await members[0].drain()
            await reject(served, "g", "t", 1, 1)

    async def check(served: Served) -> None:
        config = served.broker.log.subjects.by_name["t.g.dlq"].config
        assert config.max_message_bytes == 2_000_000 + (64 << 10)
        (subject,) = served.broker.dead_letters.redrives.subjects()
        assert (subject.name, subject.open) == ("t.g.dlq", 1)
        outcome = await served.broker.dead_letters.redrives.redrive("t.g.dlq", Filter())
        assert dict(outcome.to) == {"t": 1}
        assert served.broker.log.subjects.by_name["t"].readable_end == 4
        assert served.broker.dead_letters.redrives.subjects()[0].open == 0

    serve(die, tmp_path)
    serve(check, tmp_path)


def test_a_letters_subject_whose_name_collides_gets_another(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.create("t_g_dlq")
        await fill(served, "t", 3)
        async with sharing(served, "g", "t", 1) as members:
            await members[0].drain()
            await reject(served, "g", "t", 1, 2)
        (subject,) = served.broker.dead_letters.redrives.subjects()
        assert subject.name.startswith("t.g.dlq-")
        assert subject.open == 2
        assert not served.broker.statistics().dead_letters.failing

    serve(check, tmp_path)


def test_the_group_that_knows_which_letters_are_open_is_nobodys(tmp_path: Path) -> None:
    async def die(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 3)
        async with sharing(served, "g", "t", 1) as members:
            await members[0].drain()
            await reject(served, "g", "t", 0, 2)
        await served.broker.dead_letters.redrives.purge("t.g.dlq", Filter(), most=1)

    async def check(served: Served) -> None:
        assert INTERNAL_GROUP in served.broker.actions.groups.by_name
        async with served.client() as client:
            listed = await client.call(ListGroupsRequest(), 4)
            assert [each.group_id for each in listed.groups] == ["g"]
            deleted = await client.call(DeleteGroupsRequest([INTERNAL_GROUP]), 2)
            assert deleted.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
            beat = HeartbeatRequest(INTERNAL_GROUP, 1, "m")
            assert (await client.call(beat, 4)).error_code == ErrorCode.INVALID_GROUP_ID
        await served.broker.coordinator.expire_offsets()
        served.clock.jump(400 * 24 * 3600)
        await served.broker.coordinator.expire_offsets()
        (subject,) = served.broker.dead_letters.redrives.subjects()
        assert subject.open == 1

    serve(die, tmp_path)
    serve(check, tmp_path)


def test_a_letters_subject_that_cannot_be_made_is_told_and_made_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 5)
        async with sharing(served, "g", "t", 1) as members:
            await members[0].drain()
            doom(served, "g", "t", 0, 5)
            served.files.write_error = NO_SPACE
            await served.settled()
            dead = served.broker.statistics().dead_letters
            assert dead.waiting == 5
            assert "No space left" in dead.failing["g", "t"]
            served.files.write_error = None
            served.clock.jump(2)
            await served.settled()
            dead = served.broker.statistics().dead_letters
            assert (dead.waiting, dead.failing) == (0, {})
            assert len(letters(served, "t.g.dlq")) == 5
        assert caplog.text.count("dead letters cannot be written") == 1

    serve(check, tmp_path)


def test_dead_letters_that_come_back_to_their_own_group_for_ever(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 10)
        name = "errors.deadletterqueue.topic.name"
        await served.broker.registry.alter_group("g", {name: "{subject}"})
        async with sharing(served, "g", "t", 1) as (member,):
            assert len(await member.drain()) == 10
            await reject(served, "g", "t", 0, 1)
            subject = served.broker.log.subjects.by_name["t"]
            assert subject.readable_end == 10
            (why,) = served.broker.dead_letters.statistics().failing.values()
            assert f"change {name} of group g" in why
            await served.broker.registry.alter_group("g", {name: None})
            served.clock.jump(60)
            await served.settled()
            assert len(letters(served, "t.g.dlq")) == 1
            assert not served.broker.dead_letters.statistics().failing

    serve(check, tmp_path)
