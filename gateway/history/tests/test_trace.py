"""A trace that lacks a part of a message's life, tells another one's, or is of no use without a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.delivery.dead_letters.open_letters import Filter
from kumquat.gateway.admin.arguments import Arguments
from kumquat.gateway.admin.http import HttpError
from kumquat.gateway.admin.routes import ROUTES
from kumquat.gateway.admin.tests.dead import TIME, Sent, die, send
from kumquat.gateway.history import past, reading
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.tests.members import Member, sharing
from kumquat.gateway.tests.sharing.test_sharing import fill

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


async def ask(served: Served, **arguments: object) -> Mapping[str, Any]:
    handler, allowed = ROUTES["GET", "/trace"]
    answer = await handler(served.broker, Arguments(arguments, allowed))
    assert answer.status == 200
    return answer.payload


def kinds(trace: Mapping[str, Any]) -> list[str]:
    return [event["event"] for event in trace["events"]]


def test_the_life_of_a_message_that_dies_and_is_sent_back(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await die(served, "t", "g", [Sent(b"a", key=b"k", headers=[("h", b"\xff")]), Sent(b"b")])
        trace = await ask(served, subject="t", offset="0")
        assert kinds(trace) == ["produced", "pulled", "died", "buried"]
        assert all(event["text"] for event in trace["events"])
        assert trace["history"] == "all"
        message = trace["message"]
        assert message["stored"] > TIME == message["timestamp"]
        assert message["key"] == {"text": "k"}
        assert message["headers"] == [{"name": "h", "value": {"base64": "/w=="}}]
        assert message["size"] == 4
        assert [(g["group"], g["state"]) for g in trace["groups"]] == [("g", "dead letter")]
        (found,) = trace["letters"]
        assert (found["subject"], found["offset"]) == ("t.g.dlq", 0)
        assert (found["group"], found["reason"]) == ("g", "rejected")
        await served.broker.dead_letters.redrives.redrive("t.g.dlq", Filter())
        again = await ask(served, subject="t", offset="2")
        assert kinds(again) == ["produced"]
        assert again["events"][0]["origin"] == "t.g.dlq"
        assert again["groups"][0]["state"] == "not delivered"
        letter = await ask(served, subject="t.g.dlq", offset="1")
        assert kinds(letter) == ["redriven"]
        whole = await ask(served, subject="t", offset="1")
        assert kinds(whole) == ["produced", "pulled", "died", "buried", "redriven"]
        assert whole["events"][-1]["offset"] == 3

    serve(check, tmp_path)


def test_without_a_history_a_trace_tells_where_the_message_is(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 6)
        async with sharing(served, "shares", "t", 1) as (member,):
            held = await member.drain()
            await member.commit(held[2].offset)
            async with served.client("me") as one, served.client("me") as other:
                plain = Member("plain", "t", one, other)
                assert await plain.join()
                await plain.commit(3)
                traces = [await ask(served, subject="t", offset=n) for n in (0, 1, 4)]
        states = [{g["group"]: g["state"] for g in trace["groups"]} for trace in traces]
        assert states == [
            {"plain": "below position", "shares": "acked"},
            {"plain": "below position", "shares": "acked"},
            {"plain": "not delivered", "shares": "in flight"},
        ]
        holder = {g["group"]: g for g in traces[2]["groups"]}["shares"]
        assert holder["member"] == member.id
        assert holder["client"] == "c0"
        assert holder["attempt"] == 1
        assert holder["since"] > 0
        assert [trace["events"] for trace in traces] == [[], [], []]
        assert traces[0]["history"] == "off"
        assert traces[0]["message"]["size"] == 1

    serve(check, tmp_path)


def test_a_trace_does_not_tell_of_other_messages_nor_of_other_subjects(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        for name in ("t", "tt", "t2"):
            await served.create(name, history="all")
            await fill(served, name, *[1] * 20)
        for name in ("t", "t2"):
            async with sharing(served, "g", name, 1) as (member,):
                await member.drain()
                await member.commit()
        trace = await ask(served, subject="t", offset=7)
        assert kinds(trace) == ["produced", "pulled", "acked"]
        assert {event["subject"] for event in trace["events"]} == {"t"}

    serve(check, tmp_path)


def test_the_newest_message_with_a_key_or_a_header_is_traced(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        for n in range(5):
            await send(
                served, "t", [Sent(b"%d" % n, key=b"k%d" % (n % 2), headers=[("n", b"%d" % n)])]
            )
        await fill(served, "t", 3_000)
        assert (await ask(served, subject="t", key="k1"))["offset"] == 3
        assert (await ask(served, subject="t", key="k0"))["offset"] == 4
        assert (await ask(served, subject="t", header="n=2"))["offset"] == 2
        for wrong in ({"key": "k"}, {"header": "n=9"}):
            with pytest.raises(HttpError, match="no message of t has it"):
                await ask(served, subject="t", **wrong)
        for bad in ({}, {"offset": "1", "key": "k"}, {"header": "n"}):
            with pytest.raises(HttpError):
                await ask(served, subject="t", **bad)

    serve(check, tmp_path)


def test_a_delayed_message_is_traced_by_its_ids_and_later_by_its_offset(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        later = [("qmq-delay-ms", b"3600000"), ("qmq-delay-id", b"x")]
        other = [("qmq-delay-ms", b"9000000")]
        await send(served, "t", [Sent(b"a", headers=later), Sent(b"b", headers=other)])
        subject = served.broker.log.subjects.by_name["t"]
        waiting = await ask(served, subject="t", id="x")
        assert kinds(waiting) == ["scheduled"]
        assert waiting["delay"]["state"] == "pending"
        due = served.broker.log.log.now_ms() + 30
        await served.broker.delay.move(subject, delay_id="x", due=due)
        while not subject.readable_end:
            served.clock.jump(0.1)
            await served.settled()
        life = ["scheduled", "scheduled", "moved", "delivered"]
        by_id = await ask(served, subject="t", id="x")
        assert kinds(by_id) == life
        assert by_id["events"][-1]["offset"] == 0
        by_schedule_id = await ask(
            served, subject="t", schedule_id=by_id["events"][0]["schedule_id"]
        )
        assert kinds(by_schedule_id)[0] == "scheduled"
        trace = await ask(served, subject="t", offset=0)
        assert kinds(trace) == life
        assert trace["events"][-1]["due"] == due
        assert trace["events"][-1]["late_ms"] >= 0

    serve(check, tmp_path)


def test_the_delays_of_others_fill_a_trace_until_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "_MOST_DELAYS", 5)

    async def check(served: Served) -> None:
        await served.create("t", history="all")
        for n in range(10):
            headers = [("qmq-delay-ms", b"50"), ("qmq-delay-id", b"%d" % n)]
            await send(served, "t", [Sent(b"x", headers=headers)])
        subject = served.broker.log.subjects.by_name["t"]
        while subject.readable_end < 10:
            served.clock.jump(0.1)
            await served.settled()
        life = await ask(served, subject="t", id="7")
        assert kinds(life) == ["scheduled", "delivered"]
        assert "cut" not in life

    serve(check, tmp_path)


def test_the_same_number_dropped_twice_is_not_told_at_all() -> None:
    missed = {"at": 1, "event": "missed", "subject": "t", "count": 3}
    acked = {"at": 2, "event": "acked", "subject": "t"}
    assert past._missed_once([missed, acked, dict(missed)]) == [{**missed, "count": 6}, acked]


def test_what_retention_took_still_has_its_history(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 1, 1)
        log = served.broker.log
        log.raise_earliest_nowait(log.subjects.by_name["t"], 1)
        await log.wait_synced()
        trace = await ask(served, subject="t", offset=0)
        assert trace["message"] is None
        assert kinds(trace) == ["produced"]
        assert (await ask(served, subject="t", offset=1 << 40))["events"] == []

    serve(check, tmp_path)


def test_a_trace_reads_no_more_than_its_budget_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        for _ in range(3):
            await fill(served, "t", 1)
            await served.broker.history.flush()
        monkeypatch.setattr(reading.Budget, "spent", property(lambda self: self._left < (64 << 20)))
        trace = await ask(served, subject="t", offset=2)
        assert trace["cut"] is True

    serve(check, tmp_path)


def test_dropped_events_are_told_once(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 1)
        for _ in range(3):
            served.broker.history.buffer.miss("t", 5)
            await served.broker.history.flush()
        trace = await ask(served, subject="t", offset=0)
        assert kinds(trace) == ["produced", "missed"]
        assert trace["events"][1]["count"] == 15

    serve(check, tmp_path)


def test_a_subject_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        with pytest.raises(Exception, match="there is no subject 'nope'"):
            await ask(served, subject="nope", offset=1)

    serve(check, tmp_path)
