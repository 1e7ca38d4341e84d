"""Events that are missing, doubled, or about the wrong messages; and events that nobody asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.dead_letters.open_letters import Filter
from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.admin.tests.dead import Sent, die
from kumquat.gateway.history.tests.told import brief, told
from kumquat.gateway.tests.harness import NO_SPACE, Served, produce, serve
from kumquat.gateway.tests.members import SESSION_MS, Member, sharing
from kumquat.gateway.tests.sharing.test_sharing import fill
from kumquat.gateway.topics.table import ACTIONS
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_is_recorded_and_no_subject_made_unless_it_is_asked_for(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 5)
        async with sharing(served, "g", "t", 1) as (member,):
            await member.drain()
            await member.commit()
        assert await told(served) == []
        assert ACTIONS not in served.broker.log.subjects.by_name
        broker = served.broker
        assert broker.log.log.writer.observer is None
        assert broker.actions.log.observer is None
        assert broker.delay.shell.observer is None
        assert broker.dead_letters.settling.observer is None
        assert not broker.statistics().history.recording

    serve(check, tmp_path)


def test_a_batch_is_told_once_with_who_sent_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await served.create("other")
        async with served.client("shop") as client:
            # In one burst: the later ones take the short way of repeated requests.
            await client.send(*[(produce("t", b"1", b"2"), 9)] * 5)
            for _ in range(5):
                await client.receive()
            await client.call(produce("other", b"x"), 9)
            (peer,) = {c.session.peer for c in served.acceptor.connections}
        events = await told(served)
        assert brief(events, "producer", "address") == [
            ("produced", [[2 * n, 2]], "shop", peer) for n in range(5)
        ]

    serve(check, tmp_path)


def test_a_write_that_fails_and_a_repeated_batch_are_not_told(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await told(served)
        records = bytes(batch(b"a", producer_id=7, epoch=0, first=0))
        async with served.client() as client:
            served.files.write_error = NO_SPACE
            answer = await client.call(produce("t", records=records), 9)
            assert answer.responses[0].partition_responses[0].error_code
            served.files.write_error = None
            for _ in range(3):
                answer = await client.call(produce("t", records=records), 9)
                assert answer.responses[0].partition_responses[0].base_offset == 0
        assert brief(await told(served)) == [("produced", [[0, 1]])]

    serve(check, tmp_path)


def test_acks_and_hand_outs_name_the_very_messages(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 8)
        async with sharing(served, "g", "t", 2) as (one, other):
            held, others = await one.fetch(), await other.fetch()
            assert held
            assert others
            first = int(held[0].value)
            assert await one.commit(held[1].offset) == 0
            assert await one.commit(held[1].offset) == 0  # says nothing new
            assert await one.commit(held[-1].offset + 1) == 0
            events = await told(served, "t")
            mine = [e for e in events if e.get("member") == one.id]
            assert brief(mine, "group", "client", "attempt") == [
                ("pulled", [[first, len(held)]], "g", "c0", 1),
                ("acked", [[first, 1]], "g", "c0", None),
                ("acked", [[first + 1, len(held) - 1]], "g", "c0", None),
            ]

    serve(check, tmp_path)


def test_what_comes_again_says_why(tmp_path: Path) -> None:
    """A leave with a commit, the end of a session, and a death at the last attempt."""

    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 1)
        limits = {"delivery_count_limit": "2", "retry_backoff_ms": "1000"}
        async with sharing(served, "g", "t", 1, **limits) as (member,):
            await fill(served, "t", 1)
            assert len(await member.drain()) == 2
            await member.commit(member.position - 1)
            await member.leave()
            gone = member.id
        assert brief(await told(served, "t", "released"), "member", "reason", "client") == [
            ("released", [[1, 1]], gone, "left", "c0")
        ]
        async with sharing(served, "g", "t", 1, **limits) as (member,):
            assert len(await member.drain()) == 1
            served.clock.jump(SESSION_MS / 1000 + 1)
            await served.settled()
        (retried,) = await told(served, "t", "retried")
        assert brief([retried], "reason", "attempt") == [("retried", [[1, 1]], "session", 2)]
        assert retried["due"] > 0
        served.clock.jump(2)
        async with sharing(served, "g", "t", 1, **limits) as (member,):
            assert len(await member.drain()) == 1
            served.clock.jump(SESSION_MS / 1000 + 1)
            await served.settled()
        assert brief(await told(served, "t", "died"), "reason", "attempts", "member") == [
            ("died", [[1, 1]], "attempts", 2, member.id)
        ]
        assert brief(await told(served, "t", "buried"), "group", "letters") == [
            ("buried", [[1, 1]], "g", "t.g.dlq")
        ]
        pulled = await told(served, "t", "pulled")
        assert [e["attempt"] for e in pulled if [1, 1] in e["ranges"]] == [1, 1, 2]

    serve(check, tmp_path)


def test_a_redrive_is_told_of_the_letter_and_of_the_message_that_it_becomes(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await die(served, "t", "g", [Sent(b"a"), Sent(b"b")])
        outcome = await served.broker.dead_letters.redrives.redrive("t.g.dlq", Filter())
        assert outcome.done == 2
        assert brief(await told(served, "t.g.dlq"), "letters", "to", "offset") == [
            ("redriven", [[0, 1], [1, 1]], "t.g.dlq", "t", 2)
        ]
        produced = await told(served, "t", "produced")
        assert brief(produced, "origin", "producer") == [
            ("produced", [[0, 2]], None, "tests"),
            ("produced", [[2, 2]], "t.g.dlq", None),
        ]

    serve(check, tmp_path)


def test_a_plain_commit_tells_from_the_old_position_to_the_new_one(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 10)
        async with served.client("me") as one, served.client("me") as other:
            member = Member("g", "t", one, other)
            assert await member.join()
            for offset in (4, 7, 2, 9):
                assert await member.commit(offset) == 0
        events = [e for e in await told(served, "t") if e["event"] != "produced"]
        assert brief(events, "first", "client", "member") == [
            ("acked", [[0, 4]], True, "me", member.id),
            ("acked", [[4, 3]], None, "me", member.id),
            ("rewound", [[2, 5]], None, "me", member.id),
            ("acked", [[2, 7]], None, "me", member.id),
        ]

    serve(check, tmp_path)


def test_history_that_is_switched_on_while_leases_are_out_tells_their_acks(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 4)
        async with sharing(served, "g", "t", 1) as (member,):
            assert len(await member.drain()) == 4
            subject = served.broker.log.subjects.by_name["t"]
            await served.broker.subjects.alter(subject, {"history": "all"})
            await member.commit()
            assert brief(await told(served)) == [("acked", [[0, 4]])]
            await served.broker.subjects.alter(subject, {"history": None})
            await fill(served, "t", 1)
            assert len(await told(served)) == 1
            assert served.broker.log.log.writer.observer is None

    serve(check, tmp_path)


def test_a_sample_tells_the_whole_life_of_the_messages_in_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"history": "sampled", "history.sample": "3"})
        await fill(served, "t", *[10] * 12)
        async with sharing(served, "g", "t", 1) as (member,):
            await member.drain()
            await member.commit()
        chosen = {n for n in range(120) if n // 16 % 3 == 0}
        for kind in ("produced", "pulled", "acked"):
            seen = [
                sequence
                for event in await told(served, "t", kind)
                for first, count in event["ranges"]
                for sequence in range(first, first + count)
            ]
            assert len(seen) == len(set(seen))
            assert set(seen) == chosen, kind

    serve(check, tmp_path)


def test_a_clean_stop_loses_nothing_and_a_start_goes_on(tmp_path: Path) -> None:
    async def before(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 1, 1)
        assert served.broker.history.buffer

    async def after(served: Served) -> None:
        assert served.broker.history.recording
        await fill(served, "t", 1)
        assert brief(await told(served)) == [("produced", [[n, 1]]) for n in range(3)]

    serve(before, tmp_path)
    serve(after, tmp_path)


def test_a_default_of_the_broker_does_not_record_the_history_of_the_history(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.broker.subjects.make_retry()
        await fill(served, "t", 1)
        for _ in range(3):
            assert brief(await told(served)) == [("produced", [[0, 1]])]

    serve(check, tmp_path, history="all")
    serve(check_again, tmp_path, history="all")


async def check_again(served: Served) -> None:
    assert len(await told(served)) == 1
    assert served.broker.log.subjects.by_name[ACTIONS].config.history == 0


@pytest.mark.parametrize("way", ["handler", "template"])
def test_no_client_writes_to_the_history(tmp_path: Path, way: str) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await told(served)
        async with served.client() as client:
            for _ in range(1 if way == "handler" else 4):
                answer = await client.call(produce(ACTIONS, b"forged"), 9)
                (partition,) = answer.responses[0].partition_responses
                assert partition.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
                assert "internal" in partition.error_message
        assert await told(served) == []

    serve(check, tmp_path)


def test_the_history_keeps_a_bound_and_cannot_be_deleted(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await told(served)
        subject = served.broker.log.subjects.by_name[ACTIONS]
        assert (subject.config.retention_ms, subject.config.retention_bytes) == (
            86_400_000,
            256 << 20,
        )
        await served.broker.subjects.alter(subject, {"retention.bytes": "1000000"})
        assert subject.config.retention_bytes == 1_000_000
        with pytest.raises(Exception, match="is not deleted"):
            await served.broker.subjects.delete(subject)
        await served.broker.subjects.alter(subject, {"retention.bytes": None})

    async def again(served: Served) -> None:
        await fill(served, "t", 1)
        await told(served)
        subject = served.broker.log.subjects.by_name[ACTIONS]
        assert subject.config.retention_bytes == 256 << 20

    serve(check, tmp_path)
    serve(again, tmp_path)


def test_a_fault_in_the_recorder_reaches_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")

        def fails(*arguments: object) -> None:
            raise RuntimeError("a fault")

        monkeypatch.setattr(served.broker.history._recorder, "_written", fails)
        monkeypatch.setattr(served.broker.history._recorder, "_applying", fails)
        await fill(served, "t", 3)
        async with sharing(served, "g", "t", 1) as (member,):
            assert len(await member.drain()) == 3
            assert await member.commit() == 0
        (missed,) = await told(served)
        assert missed["event"] == "missed"
        assert missed["count"] >= 3

    serve(check, tmp_path)


def test_actions_of_a_group_that_is_not_recorded_cost_no_event(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("on", history="all")
        await served.create("off")
        await fill(served, "off", 3)
        async with sharing(served, "g", "off", 1) as (member,):
            await member.drain()
            await member.commit()
        gid = served.broker.actions.groups.by_name["g"].id
        await served.broker.coordinator.change([actions.Drop(gid, 2)])
        assert await told(served) == []

    serve(check, tmp_path)
