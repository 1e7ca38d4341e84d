"""Messages that failed: that come again too early, without saying so, or not at all; or hold up others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.admin.tests.dead import letters_in
from kumquat.gateway.groups.failures import Failure
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.tests.members import SESSION_MS, Record, sharing
from kumquat.gateway.tests.sharing.test_sharing import fill, values

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.core.delivery.progress import Progress

HOUR_MS = 3_600_000
ATTEMPT = "qmq-attempt"


async def fail(
    served: Served,
    offset: int,
    *,
    reject: bool = False,
    after_ms: int | None = None,
    reason: str = "",
) -> str | None:
    """What the broker says to a client that could not handle a record."""
    failure = Failure("g", "t", offset, reject, after_ms, reason)
    (outcome,) = await served.broker.coordinator.fail([failure])
    return outcome


def progress_of(served: Served) -> Progress:
    return served.broker.actions.groups.by_name["g"].progress[1]


def attempts_in(records: list[Record]) -> set[bytes | None]:
    return {dict(record.headers).get(ATTEMPT) for record in records}


def test_a_message_that_failed_comes_again_although_the_commit_passes_over_it(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 10)
        async with sharing(served, "g", "t", 1) as (member,):
            held = await member.drain()
            bad = held[3]
            assert await fail(served, bad.offset, after_ms=500) is None
            assert await fail(served, bad.offset, after_ms=500) is None, "a repeat is no error"
            assert await member.commit() == 0
            await member.ask(max_wait_ms=60_000)
            served.clock.jump(0.499)
            await served.settled()
            assert progress_of(served).waiting.total == 1, "never early"
            served.clock.jump(0.002)
            (again,) = await member.receive()
            assert (again.value, attempts_in([again])) == (bad.value, {b"2"})
            assert await member.commit() == 0
            assert progress_of(served).settled

    serve(check, tmp_path)


def test_the_back_off_grows_and_after_the_limit_the_message_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 1)
        configs = {"retry_backoff_ms": "1000", "delivery_count_limit": "4"}
        async with sharing(served, "g", "t", 1, **configs) as (member,):
            for attempt, seconds in ((1, 1.0), (2, 2.0), (3, 4.0)):
                (got,) = await member.fetch()
                assert attempts_in([got]) == {None if attempt == 1 else b"%d" % attempt}
                assert await fail(served, got.offset) is None
                served.clock.jump(seconds - 0.001)
                assert await member.fetch() == []
                assert await member.heartbeat() == 0
                served.clock.jump(0.002)
            (got,) = await member.fetch()
            assert await fail(served, got.offset, reason="still broken") is None
            await served.settled()
            letter = await served.broker.dead_letters.redrives.show("t.g.dlq", 0)
            assert letter is not None
            assert letter.origin[:4] == ("t", 0, "g", 4)
            assert letter.origin[6:] == ("attempts", "still broken")

    serve(check, tmp_path)


def test_what_is_acked_or_was_never_given_cannot_fail(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 10)
        async with sharing(served, "g", "t", 1) as (member,):
            held = await member.drain()
            assert await member.commit() == 0
            assert "acked already" in (await fail(served, held[0].offset) or "")
            assert "never delivered" in (await fail(served, held[-1].offset + 5) or "")
            assert "as the consumer got it" in (await fail(served, 3) or "")
            await member.leave()
        assert "has left or rebalanced" in (await fail(served, held[0].offset) or "")

    serve(check, tmp_path)


def test_a_message_is_rejected_and_lies_among_the_dead_letters(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 10)
        async with sharing(served, "g", "t", 1) as (member,):
            held = await member.drain()
            offset = held[4].offset
            assert await fail(served, offset, reject=True, reason="no such order") is None
            await served.settled()
            assert len(letters_in(served, "t.g.dlq")) == 1
            assert await member.commit() == 0
            assert await member.fetch() == []
            assert progress_of(served).settled
            assert not progress_of(served).doomed

    serve(check, tmp_path)


def test_what_a_member_that_died_held_comes_to_others_later_and_counted(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 20)
        async with sharing(served, "g", "t", 2) as (dead, other):
            held = await dead.fetch()
            await other.drain()
            assert await other.commit() == 0
            for _ in range(2):
                served.clock.jump(SESSION_MS / 2000 + 0.1)
                await served.settled()
                assert await other.heartbeat() == 0
            assert attempts_in(await other.drain()) <= {None}, "the others come after a back-off"
            served.clock.jump(1.1)
            again = await other.drain()
            assert sorted(values(again)) == sorted(values(held))
            assert attempts_in(again) == {b"2"}

    serve(check, tmp_path)


def test_a_retry_that_retention_overtakes_becomes_a_dead_letter_with_its_value(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 10)
        log = served.broker.log
        async with sharing(served, "g", "t", 1) as (member,):
            held = await member.drain()
            assert await fail(served, held[2].offset, after_ms=HOUR_MS) is None
            assert await member.commit() == 0
            subject = log.subjects.by_name["t"]
            await served.broker.dead_letters.expire([(subject, 10)])
            log.raise_earliest_nowait(subject, 10)
            await log.wait_synced()
            letter = await served.broker.dead_letters.redrives.show("t.g.dlq", 0)
            assert letter is not None
            assert (letter.record.value, letter.origin.reason) == (held[2].value, "expired")
            assert letter.origin.attempts == 1

    serve(check, tmp_path)


def test_a_retry_that_waits_holds_up_nobody(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 10)
        async with sharing(served, "g", "t", 2) as (one, other):
            held = await one.fetch()
            assert await fail(served, held[0].offset, after_ms=HOUR_MS) is None
            got = [*values(held), *values(await other.drain()), *values(await one.drain())]
            await fill(served, "t", 10)
            got += [*values(await other.drain()), *values(await one.drain())]
            assert len(set(got)) == len(got) == 20
            assert progress_of(served).waiting.total == 1
            assert progress_of(served).leased == 19

    serve(check, tmp_path)


def test_a_message_at_its_last_attempt_is_handed_out_alone_and_stops_nobody(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 10)
        configs = {"retry_backoff_ms": "0", "delivery_count_limit": "2"}
        async with sharing(served, "g", "t", 1, **configs) as (member,):
            held = await member.drain()
            assert await fail(served, held[0].offset) is None
            assert await member.drain() == [], "it holds nine others"
            served.clock.jump(5.0)
            assert await member.heartbeat() == 0
            assert await member.drain() == []
            assert await member.commit() == 0
            (again,) = await member.drain()
            assert (again.value, attempts_in([again])) == (b"0", {b"2"})
            await fill(served, "t", 10)
            assert await member.drain() == [], "it has one that is to be handled alone"
            assert await member.commit() == 0
            held = await member.drain()
            assert len(held) == 10
            assert await fail(served, held[0].offset) is None
            assert await member.drain() == []
            for _ in range(3):  # it never commits: then it gets it all the same
                served.clock.jump(4.0)
                assert await member.heartbeat() == 0
            (again,) = await member.drain()
            assert attempts_in([again]) == {b"2"}

    serve(check, tmp_path)
