"""`kumquat dlq …` on a real broker: letters that cannot be found, are sent twice, or are lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.core.clock import wall_clock_ms
from kumquat.core.delivery.dead_letters import redrive as core_redrive
from kumquat.core.records import records_of
from kumquat.gateway.admin.tests.dead import ATTEMPTS, Sent, die, send
from kumquat.gateway.admin.tests.operator import operator
from kumquat.gateway.cli import dlq_moves
from kumquat.gateway.cli.main import main
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.tests.members import SESSION_MS, sharing

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.core.records import Record

    Capture = pytest.CaptureFixture[str]

DLQ = ("--subject", "t.g.dlq")
HOUR = 3_600_000


async def read(served: Served, name: str) -> list[Record]:
    """All records of a subject."""
    log, at = served.broker.log, 0
    subject = log.subjects.by_name[name]
    found: list[Record] = []
    while at < subject.readable_end:
        for batch in await log.read(subject, at, 1 << 20, True):
            found += records_of(memoryview(batch), 1 << 20)
        at = found[-1].offset + 1
    return found


async def two_kinds(served: Served) -> None:
    """Letters 0 and 1 of t.g.dlq were rejected, 2 to 4 failed too often."""
    await served.create("t")
    some = [
        Sent(b'{"n": 1}', b"k1", [("tenant", b"a")]),
        Sent(b"\xff\x00", None, [("tenant", b"b")]),
    ]
    await die(served, "t", "g", some, text="no such customer")
    await die(served, "t", "g", [Sent(b"%d" % n, b"k2") for n in range(3)], ATTEMPTS)


def test_list_hides_letters_or_why_they_died(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        async with operator(served, capsys) as run:
            assert await run("dlq", "list") == (0, "There are no dead letters.\n", "")
            await two_kinds(served)
            (subject,) = (await run.json("dlq", "list"))["subjects"]
            told = {"subject": "t.g.dlq", "open": 5, "looked_at": 5, "rejected": 2, "attempts": 3}
            assert told.items() <= subject.items()
            assert abs(subject["newest"] - wall_clock_ms()) < HOUR
            code, out, err = await run("dlq", "list")
            assert (code, err) == (0, "")
            assert out.splitlines()[1].split()[:4] == ["t.g.dlq", "5", "2", "3"]
            answer = await run.json("dlq", "list", *DLQ)
            assert [each["sequence"] for each in answer["letters"]] == [0, 1, 2, 3, 4]
            first, second, third, *_ = answer["letters"]
            told = {"origin": "t", "origin_sequence": 0, "group": "g", "attempts": 1, "key": "k1"}
            assert told.items() <= first.items()
            assert (first["reason"], first["text"]) == ("rejected", "no such customer")
            assert 0 < first["first"] <= first["last"]
            assert (second["origin_sequence"], second["key"]) == (1, None)
            assert (third["reason"], third["text"]) == ("attempts", None)
            code, out, err = await run("dlq", "list", *DLQ)
            assert (code, len(out.splitlines())) == (0, 6)

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["--group", "g"], [0, 1, 2, 3, 4]),
        (["--group", "h"], []),
        (["--origin", "t", "--reason", "attempts"], [2, 3, 4]),
        (["--origin", "u"], []),
        (["--key", "k1"], [0]),
        (["--header", "tenant=b"], [1]),
        (["--header", "tenant=c"], []),
        (["--since", "1h"], [0, 1, 2, 3, 4]),
        (["--until", "1h"], []),
        (["--since", "1h", "--reason", "rejected", "--header", "tenant=a"], [0]),
    ],
)
def test_a_filter_finds_others(
    tmp_path: Path, capsys: Capture, wanted: list[str], found: list[int]
) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        async with operator(served, capsys) as run:
            answer = await run.json("dlq", "list", *wanted)
            assert [each["sequence"] for each in answer["letters"]] == found
            dry = await run.json("dlq", "redrive", *wanted, "--dry-run")
            assert dry["letters"] == len(found)

    serve(check, tmp_path)


def test_pages_leave_letters_out(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        await served.create("u")
        await die(served, "u", "g", [Sent(b"x")] * 3)
        async with operator(served, capsys) as run:
            for most_bytes in (core_redrive.SCANNED_BYTES, 1):
                monkeypatch.setattr(core_redrive, "SCANNED_BYTES", most_bytes)
                places: list[tuple[str, int]] = []
                after: tuple[str, ...] = ()
                while True:
                    command = ("dlq", "list", "--group", "g", "--limit", "2", *after)
                    answer = await run.json(*command)
                    places += [(each["subject"], each["sequence"]) for each in answer["letters"]]
                    if answer["next"] is None:
                        break
                    after = ("--after", answer["next"])
                assert (await run.json("dlq", "list", "--origin", "u"))["next"] is None
                five = [("t.g.dlq", n) for n in range(5)]
                assert places == [*five, *[("u.g.dlq", n) for n in range(3)]]
            dry = await run.json("dlq", "redrive", "--group", "g", "--dry-run")
            assert [row["letters"] for row in dry["subjects"]] == [5, 3]

    serve(check, tmp_path)


def test_show_gives_another_value(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        async with operator(served, capsysbinary) as run:

            async def shown(*arguments: str) -> bytes:
                code, out, err = await run("dlq", "show", *DLQ, *arguments)
                assert (code, err) == (0, b"")
                return bytes(out)

            text = (await shown("--sequence", "0")).decode()
            assert '  "n": 1' in text
            assert "header:          tenant: a" in text
            assert "reason:          rejected" in text
            assert "ff 00" in (await shown("--sequence", "1")).decode()
            assert await shown("--sequence", "0", "--raw") == b'{"n": 1}'
            assert await shown("--sequence", "1", "--raw") == b"\xff\x00"
            whole = json.loads(await shown("--sequence", "1", "--json"))
            assert (whole["value"], whole["value_encoding"]) == ("/wA=", "base64")
            names = [each["name"] for each in whole["headers"]]
            assert names[0] == "tenant"
            assert "qmq-dead-subject" in names

    serve(check, tmp_path)


def test_redrive_sends_twice_or_not_at_all(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        monkeypatch.setattr(dlq_moves, "AT_A_TIME", 2)
        await two_kinds(served)
        async with operator(served, capsys) as run:
            code, out, err = await run("dlq", "redrive", *DLQ, "--dry-run")
            assert (code, err) == (0, "")
            assert out.splitlines()[1].split()[:2] == ["t.g.dlq", "5"]
            assert "t (5)" in out
            assert len(await read(served, "t")) == 5
            dry = await run.json("dlq", "redrive", *DLQ, "--most", "3", "--dry-run")
            assert (dry["letters"], dry["subjects"][0]["to"]) == (3, {"t": 3})
            done = await run.json("dlq", "redrive", *DLQ, "--most", "3")
            assert (done["done"], done["to"], done["refused"]) == (3, {"t": 3}, {})
            left = await run.json("dlq", "list", *DLQ)
            assert [each["sequence"] for each in left["letters"]] == [3, 4]
            code, out, err = await run("dlq", "redrive", *DLQ)
            assert (code, out, err) == (0, "Sent: 2 to t (2).\n", "")
            assert await run("dlq", "redrive", *DLQ) == (0, "There are no such letters.\n", "")
            (subject,) = (await run.json("dlq", "list"))["subjects"]
            assert subject["open"] == 0
        sent = (await read(served, "t"))[5:]
        assert [r.value for r in sent] == [b'{"n": 1}', b"\xff\x00", b"0", b"1", b"2"]
        assert [r.key for r in sent] == [b"k1", None, b"k2", b"k2", b"k2"]
        for record in sent:
            names = [name for name, _ in record.headers]
            assert names[-1] == "qmq-redriven-ms"
            assert ("qmq-dead-group", b"g") in record.headers

    async def after_a_restart(served: Served) -> None:
        assert len(await read(served, "t")) == 10
        async with operator(served, capsys) as run:
            assert await run("dlq", "redrive", *DLQ) == (0, "There are no such letters.\n", "")

    serve(check, tmp_path)
    serve(after_a_restart, tmp_path)


def test_redrive_goes_elsewhere(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        await served.create("v")
        async with operator(served, capsys) as run:
            dry = await run.json("dlq", "redrive", *DLQ, "--to", "v", "--dry-run")
            assert dry["subjects"][0]["to"] == {"v": 5}
            done = await run.json("dlq", "redrive", *DLQ, "--to", "v", "--key", "k2")
            assert (done["done"], done["to"]) == (3, {"v": 3})
            await served.broker.subjects.make_internal()
            _, _, err = await run("dlq", "redrive", *DLQ, "--to", "__consumer_offsets")
            assert err == "kumquat: to must not be __consumer_offsets: nobody reads that subject\n"
        assert [record.value for record in await read(served, "v")] == [b"0", b"1", b"2"]
        assert len(await read(served, "t")) == 5

    serve(check, tmp_path)


def test_a_message_that_dies_again_is_sent_forever(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await die(served, "t", "g", [Sent(b"x")])
        async with operator(served, capsys) as run:
            assert (await run.json("dlq", "redrive", *DLQ))["done"] == 1
            async with sharing(served, "g", "t", 1, delivery_count_limit="1") as (member,):
                (again,) = await member.drain()
                assert again.value == b"x"
                served.clock.jump(SESSION_MS / 1000 + 1)
                await served.settled()
            answer = await run.json("dlq", "list", *DLQ)
            (letter,) = answer["letters"]
            assert (letter["sequence"], letter["origin_sequence"]) == (1, 1)
            assert letter["reason"] == "attempts"

    serve(check, tmp_path)


def test_a_record_that_is_no_letter_is_sent_somewhere(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        await send(served, "t.g.dlq", [Sent(b"by hand")])
        async with operator(served, capsys) as run:
            assert (await run.json("dlq", "redrive", *DLQ))["done"] == 5
            assert "has no letter 5" in await run.refused("dlq", "show", *DLQ, "--sequence", "5")

    serve(check, tmp_path)


def test_a_letter_whose_origin_is_deleted_is_lost(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        await served.broker.subjects.delete(served.broker.log.subjects.by_name["t"])
        await served.create("v")
        async with operator(served, capsys) as run:
            code, _, err = await run("dlq", "redrive", *DLQ)
            assert (code, err) == (1, "kumquat: 5 could not be sent: there is no subject t\n")
            assert len((await run.json("dlq", "list", *DLQ))["letters"]) == 5
            assert (await run.json("dlq", "redrive", *DLQ, "--to", "v"))["done"] == 5

    serve(check, tmp_path)


def test_purge_takes_others(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        async with operator(served, capsys) as run:
            dry = await run.json("dlq", "purge", *DLQ, "--reason", "attempts", "--dry-run")
            assert (dry["letters"], dry["done"]) == (3, False)
            code, out, err = await run("dlq", "purge", *DLQ, "--reason", "attempts")
            assert (code, out, err) == (0, "Given up: 3.\n", "")
            left = await run.json("dlq", "list", *DLQ)
            assert [each["sequence"] for each in left["letters"]] == [0, 1]
            assert (await run.json("dlq", "redrive", *DLQ))["done"] == 2
        assert len(await read(served, "t")) == 7

    async def after_a_restart(served: Served) -> None:
        async with operator(served, capsys) as run:
            assert (await run.json("dlq", "list", *DLQ))["letters"] == []

    serve(check, tmp_path)
    serve(after_a_restart, tmp_path)


def test_a_terminal_moves_letters_without_yes(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        async with operator(served, capsys) as run:
            for action in ("redrive", "purge"):
                code, out, err = await run("dlq", action, *DLQ)
                assert (code, "t.g.dlq" in out) == (1, True)
                assert "nothing was changed; add --yes" in err
            assert len((await run.json("dlq", "list", *DLQ))["letters"]) == 5
            code, out, err = await run("dlq", "redrive", *DLQ, "--yes")
            assert (code, out) == (0, "Sent: 5 to t (5).\n")

    serve(check, tmp_path)


def test_a_rate_is_exceeded(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is the test's own: it stands still unless the command sleeps."""
    now, sent_at = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        sent_at.append(now[0] - 100.0)

    monkeypatch.setattr("kumquat.gateway.cli.dlq_moves.monotonic", lambda: now[0])
    monkeypatch.setattr("kumquat.gateway.cli.dlq_moves.sleep", sleep)

    async def check(served: Served) -> None:
        await two_kinds(served)
        async with operator(served, capsys) as run:
            assert (await run.json("dlq", "redrive", *DLQ, "--rate", "2"))["done"] == 5

    serve(check, tmp_path)
    assert sent_at[:5] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_wrong_command_moves_something(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await two_kinds(served)
        async with operator(served, capsys) as run:
            for wrong, said in (
                (
                    ["list", "--subject", "nowhere"],
                    "no dead letters were written to a subject 'nowhere'",
                ),
                (["list", "--subject", "t"], "no dead letters were written to a subject 't'"),
                (["list", "--reason", "bad"], "reason must be one of rejected, attempts, expired"),
                (["list", "--header", "tenant"], "header must be name=value, not 'tenant'"),
                (["list", "--since", "yesterday"], "since must be a time"),
                (["list", *DLQ, "--after", "x"], "after must be what an earlier answer gave"),
                (["show", *DLQ, "--sequence", "5"], "has no letter 5; kumquat dlq list"),
                (["show", *DLQ, "--sequence", "x"], "sequence must be a whole number"),
                (["redrive", *DLQ, "--to", "nowhere"], "there is no subject 'nowhere'"),
                (["redrive", "--subject", "t"], "no dead letters were written to a subject 't'"),
            ):
                assert said in await run.refused("dlq", *wrong)
            for wrong in (
                ["redrive"],
                ["purge", "--yes"],
                ["redrive", *DLQ, "--rate", "0"],
                ["redrive", *DLQ, "--most", "0"],
                ["show", *DLQ],
            ):
                code, out, err = await run("dlq", *wrong)
                assert (code, out, err.count("\n")) == (2, "", 1)
            assert len((await run.json("dlq", "list", *DLQ))["letters"]) == 5

    serve(check, tmp_path)


def test_two_operators_send_a_letter_twice(tmp_path: Path, capsys: Capture) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await die(served, "t", "g", [Sent(b"%d" % n) for n in range(50)])
        async with operator(served, capsys) as run, trio.open_nursery() as nursery:
            command = ["dlq", "redrive", *DLQ, "--admin", run.url]
            for _ in range(4):
                nursery.start_soon(trio.to_thread.run_sync, main, command)
        assert len(await read(served, "t")) == 100

    serve(check, tmp_path)
