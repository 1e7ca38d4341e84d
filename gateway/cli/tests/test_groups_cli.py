"""`kumquat groups …` on a real broker: an operator is told wrong numbers, or moves what must not move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.core.clock import wall_clock_ms
from kumquat.core.delivery import actions
from kumquat.core.delivery.state import SHARE
from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.admin.groups import listing
from kumquat.gateway.admin.tests.operator import operator
from kumquat.gateway.admin.tests.test_groups_skip import commit, position
from kumquat.gateway.cli.endpoint import ask
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.tests.members import SESSION_MS, sharing
from kumquat.gateway.tests.sharing.test_sharing import fill

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.admin.tests.operator import Operator

    Capture = pytest.CaptureFixture[str]

HOUR = 3_600_000
RESET = ("groups", "reset", "g", "--subject", "t")
REFUSED = [
    (("--to", "21"), "has the offsets 0 to 20 to go on at, not 21"),
    (("--to", "soon"), "to must be earliest, latest or an offset, not 'soon'"),
    (("--to=-1",), "to must be earliest, latest or an offset"),
    (("--time", "yesterday"), "time must be a time"),
    (("--time", "2999-01-01"), "time lies in the future"),
    (("--time", "2"), "time must be a time"),
    (("--time", "tomorrow"), "or how long ago like 15m"),
]


def columns(line: str) -> list[str]:
    return line.split()


def test_list_shows_wrong_numbers_of_a_group_that_shares(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 50)
        await commit(served, "plain", 20)
        async with operator(served, capsys) as run, sharing(served, "g", "t", 2) as members:
            got = await members[0].drain()
            await members[0].commit(got[4].offset + 1)
            code, out, err = await run("groups", "list")
            assert (code, err) == (0, "")
            head, shared, plain = map(columns, out.splitlines())
            assert head[:4] == ["GROUP", "KIND", "STATE", "MEMBERS"]
            row = dict(zip(head, shared, strict=True))
            assert (row["GROUP"], row["KIND"], row["STATE"]) == ("g", "classic", "Stable")
            assert (row["MODE"], row["MEMBERS"], row["LAG"]) == ("shared", "2", "45")
            assert int(row["IN-FLIGHT"]) == len(got) - 5
            row = dict(zip(head, plain, strict=True))
            assert (row["GROUP"], row["STATE"], row["MODE"]) == ("plain", "Empty", "exclusive")
            assert (row["LAG"], row["MEMBERS"]) == ("30", "0")
            found = (await run.json("groups", "list"))["groups"]
            assert [group["lag"] for group in found] == [45, 30]

    serve(check, tmp_path)


def test_pages_of_groups_and_subjects_leave_one_out(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def all_pages(run: Operator, *arguments: str) -> list[str]:
        found: list[str] = []
        after: tuple[str, ...] = ()
        while True:
            answer = await run.json("groups", *arguments, *after)
            kind = "subjects" if "subjects" in answer else "groups"
            found += [item[kind[:-1]] for item in answer[kind]]
            if answer["next"] is None:
                return found
            after = ("--after", answer["next"])

    async def check(served: Served) -> None:
        names = [f"g{number}" for number in range(12)]
        await served.create("t")
        for name in names:
            await commit(served, name, 0)
        async with operator(served, capsys) as run:
            assert await all_pages(run, "list", "--limit", "5") == sorted(names)
            code, out, _ = await run("groups", "list", "--limit", "5")
            assert (code, out.splitlines()[-1]) == (0, "There are more: --after g2")
            monkeypatch.setattr(listing, "MOST_SUBJECTS", 3)
            assert await all_pages(run, "list") == sorted(names)
        assert served.broker.coordinator.groups.by_name.keys() == set(names)

    serve(check, tmp_path)


def test_describe_hides_who_holds_what(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 30)
        async with operator(served, capsys) as run, sharing(served, "g", "t", 2) as members:
            got = await members[1].drain()
            assert got
            answer = await run.json("groups", "describe", "g")
            assert {m["member"] for m in answer["members"]} == {m.id for m in members}
            assert {m["client_id"] for m in answer["members"]} == {"c0", "c1"}
            assert {m["host"] for m in answer["members"]} == {"127.0.0.1"}
            (subject,) = answer["subjects"]
            assert (subject["subject"], subject["mode"]) == ("t", "shared")
            assert subject["in_flight"] == subject["cursor"] == len(got)
            assert (subject["lag"], subject["high_watermark"]) == (30, 30)
            (held,) = answer["holdings"]
            assert (held["member"], held["messages"]) == (members[1].id, len(got))
            assert (held["subject"], held["lowest"], held["attempts"]) == ("t", 0, 1)
            assert answer["configs"]["consume.mode"] == "shared"
            code, out, err = await run("groups", "describe", "g")
            assert (code, err) == (0, "")
            assert out.startswith("g: classic, Stable, generation ")
            for text in ("Members:", "Subjects:", "Held, oldest first:", members[0].id):
                assert text in out

    serve(check, tmp_path)


def test_describe_hides_the_one_that_reads_in_order(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 3)
        async with (
            operator(served, capsys) as run,
            sharing(served, "g", "t", 1, consume_mode="exclusive") as (member,),
        ):
            answer = await run.json("groups", "describe", "g")
            (held,) = answer["holdings"]
            assert (held["member"], held["messages"]) == (member.id, None)
            (subject,) = answer["subjects"]
            assert (subject["mode"], subject["position"], subject["lag"]) == (
                "exclusive",
                None,
                None,
            )
            member.position = 0
            await member.drain()
            await member.commit()
            (subject,) = (await run.json("groups", "describe", "g"))["subjects"]
            assert (subject["position"], subject["lag"]) == (3, 0)

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("where", "to", "passed", "again"),
    [
        (("--to", "earliest"), 0, 0, 12),
        (("--to", "latest"), 20, 8, 0),
        (("--to", "15"), 15, 3, 0),
        (("--to", "12"), 12, 0, 0),
        (("--time", "1h"), 15, 3, 0),
        (("--time", "3h"), 5, 0, 7),
        (("--time", "1000000000000"), 0, 0, 12),
        (("--time", "2001-09-09T01:46:40.001Z"), 5, 0, 7),
    ],
)
def test_reset_goes_elsewhere_or_miscounts(
    tmp_path: Path, capsys: Capture, where: tuple[str, str], to: int, passed: int, again: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        now = wall_clock_ms()
        async with served.client() as client:
            for timestamp, size in ((10**12, 5), (now - 2 * HOUR, 10), (now, 5)):
                records = bytes(batch(*[b"x"] * size, timestamp=timestamp))
                await client.call(produce("t", records=records), 9)
        await commit(served, "g", 12)
        async with operator(served, capsys) as run:
            dry = await run.json(*RESET, *where, "--dry-run")
            assert await position(served, "g") == 12
            done = await run.json(*RESET, *where)
            assert {**dry, "done": True} == done
            told = {"from": 12, "to": to, "passed": passed, "again": again, "retries": 0}
            assert told.items() <= done.items()
        assert await position(served, "g") == to

    async def after_a_restart(served: Served) -> None:
        assert await position(served, "g") == to

    serve(check, tmp_path)
    serve(after_a_restart, tmp_path)


def test_reset_leaves_a_message_out_that_was_given_back(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 20)
        async with operator(served, capsys) as run:
            async with sharing(served, "g", "t", 1) as (member,):
                got = await member.drain()
                assert len(got) == 20
                await member.commit(got[9].offset + 1)
                assert "has members (1): stop its consumers" in await run.refused(
                    *RESET, "--to", "earliest"
                )
                await member.leave()
            code, out, _ = await run(*RESET, "--to", "15", "--dry-run")
            assert code == 0
            assert "g stood at 10 in t and would go on at 15." in out
            assert "Messages that it never gets: 5." in out
            assert "Nothing was changed." in out
            done = await run.json(*RESET, "--to", "5")
            assert (done["passed"], done["again"]) == (0, 5)
            async with sharing(served, "g", "t", 1) as (member,):
                assert len(await member.drain()) == 15

    serve(check, tmp_path)


def test_retries_that_wait_are_hidden_or_forgotten_without_a_word(
    tmp_path: Path, capsys: Capture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 20)
        async with operator(served, capsys) as run:
            async with sharing(served, "g", "t", 1, retry_backoff_ms="60000") as (member,):
                got = await member.drain()
                await member.commit(got[9].offset + 1)
                (held,) = (await run.json("groups", "describe", "g"))["holdings"]
                assert abs(wall_clock_ms() - held["since"]) < HOUR
                served.clock.jump(SESSION_MS / 1000 + 1)
                await served.settled()
            answer = await run.json("groups", "describe", "g")
            (subject,) = answer["subjects"]
            assert (subject["waiting"], subject["again"], subject["lag"]) == (10, 0, 10)
            assert 0 < subject["next_due"] - served.broker.actions.now_ms() <= 60_000
            assert answer["configs"]["retry.backoff.ms"] == "60000"
            assert not any(name.startswith("share.") for name in answer["configs"])
            code, out, _ = await run("groups", "describe", "g")
            assert (code, "It has no members." in out, "NEXT-RETRY" in out) == (0, True, True)
            (listed,) = (await run.json("groups", "list"))["groups"]
            assert (listed["waiting"], listed["lag"], listed["members"]) == (10, 10, 0)
            done = await run.json(*RESET, "--to", "15")
            assert (done["passed"], done["again"], done["retries"]) == (5, 0, 10)
            (subject,) = (await run.json("groups", "describe", "g"))["subjects"]
            assert (subject["waiting"], subject["lag"], subject["position"]) == (0, 5, 15)

    serve(check, tmp_path)


def test_reset_of_a_share_group_makes_it_read_in_order(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 20)
        subject_id = served.broker.log.subjects.by_name["t"].id
        await served.broker.coordinator.change(
            [
                actions.Group(1, "g"),
                actions.Emptied(1, SHARE, SHARE, 1),
                actions.Share(1, subject_id, 12),
                actions.Retry(1, subject_id, 0, [[14, 2, 2, 1 << 50]]),
            ]
        )
        async with operator(served, capsys) as run:
            done = await run.json(*RESET, "--to", "4")
            assert (done["from"], done["passed"], done["again"]) == (12, 0, 8)
            answer = await run.json("groups", "describe", "g")
            (subject,) = answer["subjects"]
            assert (answer["kind"], answer["state"]) == ("share", "Empty")
            assert (subject["mode"], subject["cursor"], subject["lag"]) == ("shared", 4, 16)
            assert subject["waiting"] == 0
            assert "share.delivery.count.limit" in answer["configs"]
            assert "consume.mode" not in answer["configs"]

    serve(check, tmp_path)


def test_a_message_whose_dead_letter_cannot_be_written_outlives_a_reset(
    tmp_path: Path, capsys: Capture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"max.message.bytes": "100000"})
        await served.create("t.g.dlq", **{"max.message.bytes": "1000"})
        async with served.client() as client:
            await client.call(produce("t", bytes(5000)), 9)
        async with operator(served, capsys) as run:
            async with sharing(served, "g", "t", 1, delivery_count_limit="1") as (member,):
                await member.drain()
                served.clock.jump(SESSION_MS / 1000 + 1)
                await served.settled()
            (subject,) = (await run.json("groups", "describe", "g"))["subjects"]
            assert (subject["doomed"], subject["lag"]) == (1, 1)
            assert "max.message.bytes of t.g.dlq is 1000" in subject["doomed_why"]
            code, out, _ = await run("groups", "describe", "g")
            assert (code, "t: dead letters cannot be written: " in out) == (0, True)
            status, statistics = await trio.to_thread.run_sync(
                ask, run.url, "GET", "/statistics", {}
            )
            (failing,) = statistics["dead_letters"]["failing"]
            assert (status, failing["group"], failing["subject"]) == (200, "g", "t")
            assert failing["reason"] == subject["doomed_why"]
            code, out, _ = await run(*RESET, "--to", "latest")
            assert (code, "still become dead letters: 1." in out) == (0, True)
            (subject,) = (await run.json("groups", "describe", "g"))["subjects"]
            assert (subject["doomed"], subject["cursor"]) == (1, 1)
            assert [g["group"] for g in (await run.json("groups", "list"))["groups"]] == ["g"]
            assert "no group" in await run.refused("groups", "describe", "__kumquat_dlq")

    serve(check, tmp_path)


def test_a_wrong_command_changes_something(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 20)
        await commit(served, "g", 12)
        async with operator(served, capsys) as run:
            assert "there is no group 'h'" in await run.refused("groups", "describe", "h")
            wrong = ("groups", "reset", "h", "--subject", "t", "--to", "latest")
            assert "there is no group 'h'; kumquat groups list" in await run.refused(*wrong)
            wrong = ("groups", "reset", "g", "--subject", "u", "--to", "latest")
            assert "there is no subject 'u'" in await run.refused(*wrong)
            for where, said in REFUSED:
                assert said in await run.refused(*RESET, *where)
            for where in ((), ("--to", "1", "--time", "2h")):
                code, out, err = await run(*RESET, *where)
                assert (code, out, err.count("\n")) == (2, "", 1)
            assert "limit must be" in await run.refused("groups", "list", "--limit", "0")
        assert await position(served, "g") == 12

    serve(check, tmp_path)
