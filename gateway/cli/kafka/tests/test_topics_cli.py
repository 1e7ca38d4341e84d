"""`kumquat topics` and `configs` on a real broker: wrong numbers, changes half done, bad explanations."""

from __future__ import annotations

import gc
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.cli import bootstrap, names
from kumquat.gateway.cli.kafka import topics
from kumquat.gateway.cli.tests.terminal import run

if TYPE_CHECKING:
    from kumquat.gateway.testing.broker import TestBroker

    At = tuple[str, str]


def fill(at: At, topic: str, count: int) -> None:
    assert run("produce", topic, *at, stdin=b"12345\n" * count).code == 0


def test_a_list_has_wrong_numbers(at: At, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(at, topic, 30)
    assert run("topics", "create", f"{topic}.empty", *at).code == 0
    assert run("topics", "records-delete", topic, "--before", "10", *at).code == 0
    first, second = run("topics", "list", f"{topic}*", *at, "--json").json["topics"]
    assert (first["topic"], first["earliest"], first["latest"]) == (topic, 10, 30)
    assert (first["messages"], first["bytes"] > 0) == (20, True)
    assert (second["topic"], second["messages"], second["bytes"]) == (f"{topic}.empty", 0, 0)
    head, row, _ = run("topics", "list", f"{topic}*", *at).text.splitlines()
    assert head.split() == ["TOPIC", "EARLIEST", "LATEST", "MESSAGES", "SIZE"]
    assert row.split()[:4] == [topic, "10", "30", "20"]
    monkeypatch.setattr(topics, "AT_A_TIME", 1)
    assert run("topics", "list", f"{topic}*", *at, "--json").json["topics"] == [first, second]
    assert run("topics", "list", "--names", f"{topic}*", *at).text == f"{topic}\n{topic}.empty\n"
    assert run("topics", "list", "none-*", *at).text == "There are no such topics.\n"


def test_a_description_leaves_out_what_was_set(at: At, topic: str) -> None:
    given = ("-c", "retention.ms=86400000", "--config", "max.message.bytes=20000")
    assert run("topics", "create", topic, *given, *at).text == f"Created: {topic}\n"
    fill(at, topic, 3)
    (told,) = run("topics", "describe", topic, *at, "--json").json["topics"]
    assert told["configs"] == {"max.message.bytes": "20000", "retention.ms": "86400000"}
    assert (told["earliest"], told["latest"], told["messages"]) == (0, 3, 3)
    shown = run("topics", "describe", topic, *at).text.splitlines()
    assert f"topic:     {topic}" in shown
    assert f"id:        {told['id']}" in shown
    assert "config:    retention.ms=86400000" in shown
    assert any(line.startswith("size:") for line in shown)


def test_one_topic_that_is_refused_hides_the_others(at: At, topic: str) -> None:
    one, two = f"{topic}.1", f"{topic}.2"
    assert run("topics", "create", one, *at).code == 0
    done = run("topics", "create", one, two, *at)
    assert (done.code, done.text) == (1, f"Created: {two}\n")
    assert done.err == f"kumquat: {one}: topic '{one}' exists already\n"
    assert run("topics", "create", one, "--if-not-exists", *at) == (0, b"", "")
    done = run("topics", "create", one, *at, "--json")
    assert (done.code, done.err) == (1, "")
    assert '"created": []' in done.text
    assert (
        "unknown config 'foo'" in run("topics", "create", f"{topic}.3", "-c", "foo=1", *at).refused
    )
    nowhere = run("topics", "delete", one, "nowhere", *at).refused
    assert "there is no topic 'nowhere'; kumquat topics list shows them" in nowhere
    assert run("topics", "delete", one, two, *at).text == f"Deleted: {one}\nDeleted: {two}\n"
    assert "there is no topic" in run("topics", "describe", one, *at).refused


def test_a_terminal_deletes_without_yes(at: At, topic: str) -> None:
    fill(at, topic, 3)
    assert run("consume", topic, "-e", "-g", topic, *at).code == 0
    for command in (
        ["topics", "delete", topic],
        ["topics", "records-delete", topic, "--before", "2"],
        ["groups", "delete", topic],
    ):
        done = run(*command, *at, person=True)
        assert (done.code, "nothing was changed; add --yes" in done.err) == (1, True)
    delete = ("topics", "records-delete", topic, "--before", "2", "--yes", *at)
    assert run(*delete, person=True).code == 0
    deleted = run("groups", "delete", topic, "--yes", *at, person=True)
    assert deleted.text == f"Deleted: {topic}.\n"
    (told,) = run("topics", "describe", topic, *at, "--json").json["topics"]
    assert (told["earliest"], told["latest"]) == (2, 3)


def test_other_records_are_deleted(at: At, topic: str) -> None:
    fill(at, topic, 10)
    delete = ("topics", "records-delete", topic, *at)
    dry = run(*delete, "--before", "4", "--dry-run", "--json").json
    assert (dry["from"], dry["to"], dry["messages"], dry["done"]) == (0, 4, 4, False)
    assert run(*delete, "--before", "4").text == (
        f"Deleted: 4 offsets of {topic}, those below 4.\n"
    )
    assert run(*delete, "--older-than", "1h", "--json").json["messages"] == 0
    assert "ends at 10; there is no 11" in run(*delete, "--before", "11").refused
    assert run(*delete, "--older-than", "0s", "--json").json["to"] == 10
    assert run("topics", "describe", topic, *at, "--json").json["topics"][0]["messages"] == 0
    assert run(*delete, "--before", "latest", "--json").json["messages"] == 0


def test_configs_of_a_topic_are_half_changed(at: At, topic: str) -> None:
    of = ("--topic", topic, *at)
    assert run("topics", "create", topic, *at).code == 0
    assert run("configs", "get", *of).text == "Nothing is set; --all shows the defaults.\n"
    done = run("configs", "set", *of, "retention.ms=1000", "max.message.bytes=x")
    assert "max.message.bytes='x' is not allowed: expected" in done.refused
    assert run("configs", "get", *of, "--json").json["configs"] == []
    assert run("configs", "set", *of, "retention.ms=3600000").text == "retention.ms=3600000\n"
    head, row = run("configs", "get", *of).text.splitlines()
    assert head.split() == ["CONFIG", "VALUE", "FROM", "TYPE"]
    assert row.split() == ["retention.ms", "3600000", "dynamic", "topic", "long"]
    everything = run("configs", "get", *of, "--all", "--json").json["configs"]
    assert len(everything) > 10
    (one,) = run("configs", "get", *of, "max.message.bytes", "--json").json["configs"]
    assert one["source"] == "default"
    assert run("configs", "unset", *of, "retention.ms", "--json").json["changed"] == {
        "retention.ms": None
    }
    assert run("configs", "get", *of, "--json").json["configs"] == []
    assert "no config 'foo'; --all shows" in run("configs", "get", *of, "foo").refused
    assert "there is no topic 'nowhere'" in run("configs", "get", "--topic", "nowhere", *at).refused
    assert "'nowhere'" in run("configs", "set", "--topic", "nowhere", "a=b", *at).refused


def test_configs_of_a_group_or_of_the_broker_are_those_of_a_topic(at: At, topic: str) -> None:
    of = ("--group", topic, *at)
    assert run("configs", "set", *of, "consume.mode=shared").text == "consume.mode=shared\n"
    (one,) = run("configs", "get", *of, "--json").json["configs"]
    assert (one["name"], one["value"], one["source"]) == ("consume.mode", "shared", "dynamic group")
    assert run("configs", "unset", *of, "consume.mode").code == 0
    found = run("configs", "get", "--broker", *at, "--json").json["configs"]
    assert "log.dirs" in [config["name"] for config in found]
    refused = run("configs", "set", "--broker", "log.dirs=x", *at).refused
    assert "log.dirs cannot be changed while the broker runs" in refused


def test_a_group_with_members_is_deleted(at: At, topic: str) -> None:
    fill(at, topic, 1)
    assert run("consume", topic, "-e", "-g", topic, *at).code == 0
    done = run("groups", "delete", topic, "nobody", *at)
    assert (done.code, done.text) == (1, f"Deleted: {topic}.\n")
    assert done.err == "kumquat: nobody: there is no such group; kumquat groups list shows them\n"
    answer = run("groups", "delete", "nobody", *at, "--json")
    assert (answer.code, '"refused": {"nobody"' in answer.text) == (1, True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["topics"], "say which ACTION: kumquat topics list, kumquat topics describe"),
        (["topics", "lits"], "invalid choice: 'lits' (did you mean list?)"),
        (["topics", "describe"], "required: TOPIC"),
        (["topics", "create", "t", "-c", "x"], "--config x: expected NAME=VALUE"),
        (["topics", "records-delete", "t"], "either --before or --older-than"),
        (["topics", "records-delete", "t", "--before", "x"], "expected an offset, or latest"),
        (["topics", "records-delete", "t", "--older-than", "x"], "--older-than 'x': "),
        (["topics", "list", "--yse"], "unknown argument '--yse'"),
        (["topics", "list", "a", "b"], "unknown argument 'b'"),
        (["topics", "delete", "t", "--yes=1"], "--yes: takes no value"),
        (["configs", "get"], "say whose configs: --topic NAME, --group NAME or --broker"),
        (["configs", "get", "--topic", "t", "--broker"], "say whose configs"),
        (["configs", "set", "--topic", "t", "x"], "'x': expected CONFIG=VALUE"),
        (["configs", "set", "--topic", "t"], "required: CONFIG=VALUE"),
        (["configs", "unset", "--topic"], "--topic: expected one argument"),
        (["groups", "delete"], "required: GROUP"),
    ],
)
def test_a_wrong_command_is_not_one_line(command: list[str], said: str) -> None:
    assert said in run(*command).wrong


@pytest.mark.parametrize("address", ["", "host", "host:", ":9092", "host:x", "host:99999"])
def test_an_address_of_the_wrong_form_is_tried(address: str) -> None:
    assert "is not of the form 127.0.0.1:9092" in run("topics", "list", "-b", address or ",").wrong


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_answers_and_is_no_broker_is_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap.admin_client.__wrapped__, "__defaults__", (500,))  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.close()

        serving = threading.Thread(target=hang_up)
        serving.start()
        said = run("topics", "list", "-b", address).wrong
        server.shutdown(socket.SHUT_RDWR)
        serving.join()
    gc.collect()  # kafka-python leaves sockets behind that were hung up
    assert (
        f"the broker at {address} does not answer; is it running, and is --bootstrap right?" in said
    )


def test_the_second_address_is_not_tried(running: TestBroker) -> None:
    assert run("topics", "list", "-b", f"127.0.0.1:1,{running.bootstrap}").code == 0


def test_completion_waits_or_shows_others(
    running: TestBroker, at: At, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.shell_completion import BashComplete

    from kumquat.gateway.cli.main import kumquat

    def completed(args: list[str], incomplete: str) -> list[str]:
        complete = BashComplete(kumquat, {}, "kumquat", "_KUMQUAT_COMPLETE")
        return [item.value for item in complete.get_completions(args, incomplete)]

    fill(at, topic, 1)
    assert run("consume", topic, "-e", "-g", topic, *at).code == 0
    monkeypatch.setattr(names, "HURRY_MS", 60_000)
    monkeypatch.setenv("KUMQUAT_BOOTSTRAP", running.bootstrap)
    assert completed(["consume"], topic[:-1]) == [topic]
    assert completed(["topics", "describe"], topic) == [topic]
    assert completed(["groups", "describe"], topic) == [topic]
    assert completed(["consume", "x", "-g"], topic) == [topic]
    assert completed(["consume"], "no-such") == []
    assert completed([], "to") == ["topics", "top"]
    assert completed(["topics"], "rec") == ["records-delete"]
    assert "--older-than" in completed(["topics", "records-delete"], "--o")
    monkeypatch.setenv("KUMQUAT_BOOTSTRAP", "127.0.0.1:1")
    assert completed(["consume"], "") == []
    monkeypatch.setenv("KUMQUAT_BOOTSTRAP", "nonsense")
    assert completed(["consume"], "") == []
