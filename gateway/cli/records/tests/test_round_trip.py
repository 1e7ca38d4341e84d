"""`kumquat produce` and `consume` on a real broker: bytes, keys, headers or delays that change."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from kafka import codec

from kumquat.gateway.cli.tests.terminal import Result, run, shell

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.testing.broker import TestBroker

    At = tuple[str, str]

HOUR = 3_600_000


def lines(result: Result) -> list[Any]:
    assert (result.code, result.err) == (0, ""), result
    return [json.loads(line) for line in result.out.splitlines()]


def read(at: At, topic: str, *how: str) -> bytes:
    result = run("consume", topic, "-e", *how, *at)
    assert (result.code, result.err) == (0, ""), result
    return result.out


def write(at: At, topic: str, stdin: bytes, *how: str) -> Result:
    return run("produce", topic, *how, *at, stdin=stdin)


def test_lines_change_on_the_way(at: At, topic: str) -> None:
    assert write(at, topic, b"one\ntwo\n\nlast") == (0, b"", "4 records written\n")
    assert read(at, topic) == b"one\ntwo\n\nlast\n"
    assert write(at, topic, b"five\n", "-q") == (0, b"", "")
    assert read(at, topic, "-o", "4", "-f", "%o %s") == b"4 five"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_binary_values_change_on_the_way(at: At, topic: str, compression: str) -> None:
    values = [bytes(range(256)), b"\n\r\x1b", b"", "ä".encode() * 1000, os.urandom(2000)]
    values = [value.replace(b"\0||", b"") for value in values]
    stdin = b"\0||".join(values)
    done = write(at, topic, stdin, "-D", "\\x00||", "-z", compression)
    assert done == (0, b"", "5 records written\n")
    assert read(at, topic, "-f", "%s\\x00||") == stdin + b"\0||"
    assert read(at, topic, "-o", "1", "-c", "1", "-f", "%s", "--as", "hex") == b"0a0d1b"
    assert [
        bytes.fromhex(x.decode()) for x in read(at, topic, "--as", "hex").split(b"\n")[:-1]
    ] == values


def test_a_topic_with_snappy_cannot_be_read_without_another_library(
    at: At, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write(at, topic, b"written\n" * 100, "-z", "snappy").code == 0
    monkeypatch.setattr(codec, "snappy", None)
    assert read(at, topic) == b"written\n" * 100
    monkeypatch.setattr(codec, "snappy", None)
    assert write(at, topic, b"by us\n" * 100, "-z", "snappy").code == 0
    monkeypatch.undo()
    assert read(at, topic, "-o", "100") == b"by us\n" * 100


def test_keys_and_headers_are_lost(at: At, topic: str) -> None:
    given = ("-K", ":", "-H", "tenant=a", "-H", "tenant=b=c", "-H", "empty=")
    assert write(at, topic, b"k1:v:1\nno key\nk2:\n", *given).code == 0
    first, second, third = lines(run("consume", topic, "-e", "-J", *at))
    assert (first["key"], first["value"], first["offset"]) == ("k1", "v:1", 0)
    assert first["headers"] == [["tenant", "a"], ["tenant", "b=c"], ["empty", ""]]
    assert (second["key"], second["value"]) == (None, "no key")
    assert (third["key"], third["value"]) == ("k2", "")
    shown = read(at, topic, "-f", "%k|%s|%h|%K|%S|%t|%p\\n").splitlines()
    assert shown[0] == f"k1|v:1|tenant=a,tenant=b=c,empty=|2|3|{topic}|0".encode()
    assert shown[1].startswith(b"|no key|")
    assert read(at, topic, "--key", "k2", "-f", "%o") == b"2"


def test_null_becomes_empty(at: At, topic: str) -> None:
    assert write(at, topic, b"k:\n:v\n\n", "-K:", "-Z").code == 0
    found = lines(run("consume", topic, "-e", "-J", *at))
    keyed = [(each["key"], each["value"]) for each in found]
    assert keyed == [("k", None), (None, "v"), (None, None)]
    assert read(at, topic, "-Z", "-f", "%k=%s %S\\n") == b"k=NULL -1\nNULL=v 1\nNULL=NULL -1\n"


def test_a_topic_that_goes_through_json_is_another(at: At, topic: str) -> None:
    assert write(at, topic, b"k\xff:v\nk:\xff\xfe\nx:\n", "-K:", "-Z", "-H", "h=1").code == 0
    dumped = run("consume", topic, "-e", "-J", *at).out
    assert write(at, f"{topic}.copy", dumped, "--json").err == "3 records written\n"
    copied = lines(run("consume", f"{topic}.copy", "-e", "-J", *at))
    for there, here in zip(lines(Result(0, dumped, "")), copied, strict=True):
        for name in ("offset", "key", "value", "headers"):
            assert there[name] == here[name]


def test_files_are_cut_into_lines(at: At, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"two\nlines\n")
    (tmp_path / "b").write_bytes(b"")
    assert write(at, topic, b"", str(tmp_path / "a"), str(tmp_path / "b"), "-k", "f").code == 0
    assert read(at, topic, "-f", "%k %S\\n") == b"f 10\nf 0\n"
    missing = write(at, topic, b"", str(tmp_path / "a"), str(tmp_path / "none"))
    assert missing.code == 1
    assert "1 record written\nkumquat: stopped: cannot read " in missing.err


def pending(running: TestBroker, topic: str) -> list[dict[str, Any]]:
    answer = run("delay", "list", "--subject", topic, "--json", "--admin", running.admin)
    items: list[dict[str, Any]] = answer.json["items"]
    return items


def test_a_delay_is_forgotten(running: TestBroker, at: At, topic: str) -> None:
    assert write(at, topic, b"later\n", "--delay", "1h", "--delay-id", "i1").code == 0
    at_time = ("--at", "2099-01-01T00:00Z")
    refused = write(at, topic, b"much later\n", *at_time)
    assert (refused.code, "header qmq-deliver-at is" in refused.err) == (1, True)
    due = run("delay", "show", "--subject", topic, "--id", "i1", "--json", "--admin", running.admin)
    given = [
        {"value": "now"},
        {"value": "in two hours", "delay": "2h", "delay_id": "i2", "key": "k"},
        {"value": "also now"},
        {"value": "then", "at": due.json["due"] + HOUR // 2},
    ]
    stdin = "\n".join(map(json.dumps, given)).encode()
    assert write(at, topic, stdin, "--json").err == "4 records written\n"
    assert read(at, topic) == b"now\nalso now\n"
    first, second, third = pending(running, topic)
    assert [first["id"], second["id"], third["id"]] == ["i1", None, "i2"]
    assert second["due"] - first["due"] == HOUR // 2
    assert write(at, topic, b"at once\n", "--at", "2020-01-01T00:00Z").code == 0


def test_a_refused_record_is_counted_as_written(at: At, topic: str) -> None:
    done = write(at, topic, b"x\n", "--delay", "soon")
    assert done.code == 1
    first, second = done.err.splitlines()
    assert first.startswith("kumquat: record 1 refused: ")
    assert "header qmq-delay-ms is 'soon'; allowed is" in first
    assert second == "0 records written"
    done = write(at, topic, b"x\n", "-H", "qmq-delya-ms=5")
    assert "did you mean qmq-delay-ms?" in done.err
    good = json.dumps({"value": "good"})
    bad = json.dumps({"value": "bad", "delay": "never"})
    done = write(at, topic, f"{good}\n{bad}\n".encode(), "--json")
    assert done.code == 1
    assert "kumquat: 2 records from number 1 on refused: record 1 of the batch: " in done.err
    done = write(at, topic, f"{good}\nnonsense\n{good}\n".encode(), "--json")
    assert done.code == 1
    assert "kumquat: stopped: line 2: it is not JSON" in done.err
    assert read(at, topic) == b"good\n"


def test_what_is_too_large_for_the_topic_is_lost_without_a_word(at: At, topic: str) -> None:
    assert run("topics", "create", topic, "-c", "max.message.bytes=1000", *at).code == 0
    done = write(at, topic, b"x" * 5000)
    assert done.code == 1
    assert "kumquat: record 1 refused: " in done.err


def test_it_begins_or_ends_at_another_place(at: At, topic: str) -> None:
    write(at, topic, b"".join(b"%d\n" % n for n in range(20)))
    assert read(at, topic, "-o", "17") == b"17\n18\n19\n"
    assert read(at, topic, "-o", "-2") == b"18\n19\n"
    assert read(at, topic, "-o", "end") == b""
    assert read(at, topic, "-o", "@1h", "-c", "2") == b"0\n1\n"
    assert read(at, topic, "-o", "@2999-01-01") == b""
    assert read(at, topic, "-c", "3") == b"0\n1\n2\n"
    assert run("topics", "records-delete", topic, "--before", "5", *at).code == 0
    assert read(at, topic, "-c", "1") == b"5\n"
    assert read(at, topic, "-o", "2", "-c", "1") == b"5\n"
    assert "ends at 20; there is no 100 yet" in run("consume", topic, "-o", "100", *at).refused


def test_a_group_gets_a_record_twice_or_never(at: At, topic: str) -> None:
    write(at, topic, b"".join(b"%d\n" % n for n in range(10)))
    member = ("-g", topic)
    assert read(at, topic, *member, "-c", "3") == b"0\n1\n2\n"
    assert read(at, topic, *member, "-c", "2", "-f", "%s ") == b"3 4 "
    assert read(at, topic, *member) == b"5\n6\n7\n8\n9\n"
    assert read(at, topic, *member) == b""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["consume"], "TOPIC"),
        (["consume", "t", "-o", "soon"], "-o: expected beginning, end, an offset"),
        (["consume", "t", "-o", "@soon"], "-o: "),
        (["consume", "t", "-o", "5", "-g", "g"], "kumquat groups reset moves it"),
        (["consume", "t", "-c", "0"], "--count: 0 is not in the range"),
        (["consume", "t", "-f", "%q"], "-f: %q is not known; there are %s"),
        (["consume", "t", "-f", "%s", "-J"], "give either -f or -J"),
        (["consume", "t", "--as", "octal"], "--as: 'octal' is not one of"),
        (["produce"], "TOPIC"),
        (["produce", "t", "-H", "x"], "-H x: expected NAME=VALUE"),
        (["produce", "t", "-D", ""], "a delimiter must not be empty"),
        (["produce", "t", "-K", "\\q"], "delimiter: \\q is not known"),
        (["produce", "t", "--acks", "2"], "--acks: '2' is not one of"),
        (["produce", "t", "-z", "rar"], "'rar' is not one of"),
        (["produce", "t", "--delay", "1h", "--at", "2030-01-01T00:00Z"], "either --delay or --at"),
        (["produce", "t", "--json", "-K:"], "--json is for lines of stdin"),
        (["produce", "t", "-b", "nonsense"], "is not of the form 127.0.0.1:9092"),
        (["produce", "t", "-b", "127.0.0.1:1"], "no broker at 127.0.0.1:1: Connection refused; is"),
        (["consume", "t", "-b", "127.0.0.1:1"], "no broker at 127.0.0.1:1: Connection refused; is"),
    ],
)
def test_a_wrong_command_is_not_one_line(command: list[str], said: str) -> None:
    assert said in run(*command).wrong


def test_a_topic_that_is_not_there_is_waited_for(at: At, topic: str) -> None:
    assert (
        "there is no topic 'nowhere'; kumquat topics list" in run("consume", "nowhere", *at).refused
    )
    assert "TOPIC: " in run("produce", "no such name", *at).wrong


def test_acks_0_says_that_nothing_was_written(at: At, topic: str) -> None:
    assert write(at, topic, b"a\n", "--acks", "1").err == "1 record written\n"
    assert write(at, topic, b"b\n", "--acks", "0").err == "1 record written\n"
    assert read(at, topic, "-c", "2") == b"a\nb\n"


def test_a_process_of_its_own_does_something_else(running: TestBroker, topic: str) -> None:
    at = running.bootstrap
    done = shell("produce", topic, stdin=b"\xff\0\n" * 3, KUMQUAT_BOOTSTRAP=at)
    assert done == (0, b"", "3 records written\n")
    assert shell("consume", topic, "-e", KUMQUAT_BOOTSTRAP=at) == (0, b"\xff\0\n" * 3, "")
