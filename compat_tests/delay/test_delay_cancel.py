"""Cancelling and moving by `qmq-delay-id`, with records of stock clients and with `kumquat delay`.

A cancel races with the clock, on a busy machine too: a story either gives it an hour, or accepts both
outcomes and holds the broker to the one that it told.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import pytest
from confluent_kafka import KafkaError, KafkaException

from compat_tests.delay.stories import (
    REFUSED,
    SEND,
    Sent,
    after,
    assert_not_early,
    at,
    cancel,
    named,
    now,
    read_confluent,
    send_confluent,
    up_to,
)
from compat_tests.support import DEADLINE, eventually
from kumquat.testing import TestBroker, broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ADMIN = "HTTP://127.0.0.1:0"
pytestmark = [
    pytest.mark.differs("Kafka has no messages for later"),
    pytest.mark.kumquat(admin_listener=ADMIN),
]
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    """A broker with an admin endpoint, for the stories that need no restart."""
    with broker(admin_listener=ADMIN) as made:
        yield made


def admin_url(on: TestBroker) -> str:
    """As the last start told it."""
    return str(re.findall(r"admin endpoint on (http://[^\s;,]+)", on.log_text())[-1])


def ask(on: TestBroker, path: str, **arguments: object) -> Any:
    connection = HTTPConnection(urlsplit(admin_url(on)).netloc, timeout=DEADLINE)
    try:
        named = {name.rstrip("_"): value for name, value in arguments.items()}
        connection.request("GET", f"{path}?{urlencode(named)}")
        return json.load(connection.getresponse())
    finally:
        connection.close()


def status(on: TestBroker, subject: str, name: str) -> str:
    return str(ask(on, "/delay/show", subject=subject, id=name)["status"])


def count(on: TestBroker, subject: str, **between: int) -> int:
    return int(ask(on, "/delay/count", subject=subject, **between)["count"])


def last(on: TestBroker, subject: str, when: int) -> list[bytes | None]:
    """The values of all that comes before a message due at `when`, which is sent now."""
    send_confluent(on.bootstrap, subject, [Sent(b"last", at(when))])
    return [read.value for read in up_to(on.bootstrap, subject, b"last")]


@pytest.mark.parametrize("client", sorted(SEND))
def test_what_is_cancelled_in_time_never_comes(running: TestBroker, name: str, client: str) -> None:
    send = SEND[client]
    due = now() + 2000
    send(running.bootstrap, name, [Sent(b"wanted", at(due)), Sent(b"x", at(due) + named("a"))])
    came_too_late = False
    try:
        assert send(running.bootstrap, name, [Sent(b"", cancel("a"))]) == [-1]
    except REFUSED:
        came_too_late = True
    values = last(running, name, max(due, now()) + 1)
    assert values == ([b"wanted", b"x"] if came_too_late else [b"wanted"])
    expected = "delivered" if came_too_late else "cancelled"
    assert status(running, name, "a") == expected


def test_a_cancel_that_comes_too_late_says_so_when_alone(running: TestBroker, name: str) -> None:
    send_confluent(running.bootstrap, name, [Sent(b"x", after(0) + named("a"))])
    (read,) = read_confluent(running.bootstrap, name, 1)
    with pytest.raises(KafkaException) as caught:
        send_confluent(running.bootstrap, name, [Sent(b"", cancel("a"))])
    assert caught.value.args[0].code() == KafkaError.INVALID_RECORD
    told = send_confluent(running.bootstrap, name, [Sent(b"y"), Sent(b"", cancel("a"))])
    assert told == [1, 2], "in company it is accepted like any message"
    assert status(running, name, "a") == "delivered"
    assert read.value == b"x"


def test_a_message_that_is_moved_comes_once_at_the_new_time(running: TestBroker, name: str) -> None:
    first = [
        Sent(b"sooner", after(DAY) + named("a")),
        Sent(b"later", at(now() + HOUR) + named("b")),
    ]
    send_confluent(running.bootstrap, name, first)
    sooner = now() + 300
    send_confluent(running.bootstrap, name, [Sent(b"ignored", at(sooner) + cancel("a"))])
    send_confluent(running.bootstrap, name, [Sent(b"", after(2 * DAY) + cancel("b"))])
    (read,) = read_confluent(running.bootstrap, name, 1)
    assert read.value == b"sooner"
    assert read.due >= sooner
    assert_not_early(read)
    assert status(running, name, "a") == "delivered"
    assert status(running, name, "b") in ("moved", "pending")
    assert count(running, name) == 1
    assert count(running, name, from_=now() + DAY) == 1
    assert last(running, name, now()) == [b"sooner"]


def test_a_cancel_that_overtook_its_message_is_remembered(running: TestBroker, name: str) -> None:
    send_confluent(running.bootstrap, name, [Sent(b"", cancel("a"))])
    assert status(running, name, "a") == "remembered"
    when = now() + 200
    send_confluent(running.bootstrap, name, [Sent(b"never", at(when) + named("a"))])
    assert last(running, name, max(when, now()) + 1) == []
    assert status(running, name, "a") == "cancelled"


@pytest.mark.kumquat(admin_listener=ADMIN, delay_cancel_remember_ms=1)
def test_a_cancel_is_not_remembered_for_longer_than_was_said(kumquat: TestBroker) -> None:
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"", cancel("a"))])
    start = now()
    eventually(lambda: now() > start + 2, "it is forgotten")
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"comes", after(0) + named("a"))])
    (read,) = read_confluent(kumquat.bootstrap, "orders", 1)
    assert read.value == b"comes"


def test_a_name_is_its_subjects_own(running: TestBroker, names: Callable[[], str]) -> None:
    orders, payments = names(), names()
    for subject in (orders, payments):
        send_confluent(running.bootstrap, subject, [Sent(b"x", after(HOUR) + named("a"))])
    send_confluent(running.bootstrap, orders, [Sent(b"", cancel("a"))])
    assert status(running, orders, "a") == "cancelled"
    assert status(running, payments, "a") == "pending"
    assert (count(running, orders), count(running, payments)) == (0, 1)


def test_scheduled_cancelled_and_moved_in_one_batch_they_act_in_order(
    running: TestBroker, name: str
) -> None:
    batch = [
        Sent(b"cancelled", after(HOUR) + named("a")),
        Sent(b"", cancel("a")),
        Sent(b"moved", after(HOUR) + named("b")),
        Sent(b"", after(0) + cancel("b")),
        Sent(b"plain"),
    ]
    send_confluent(running.bootstrap, name, batch)
    got = read_confluent(running.bootstrap, name, 2)
    assert [read.value for read in got] == [b"plain", b"moved"]
    assert status(running, name, "a") == "cancelled"
    assert count(running, name) == 0


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_outcomes_survive_a_restart(kumquat: TestBroker, how: str) -> None:
    batch = [Sent(b"%d" % n, after(HOUR + n) + named(f"n{n}")) for n in range(6)]
    send_confluent(kumquat.bootstrap, "orders", batch)
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"", cancel("n0"))])
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"", cancel("n1") + after(DAY))])
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"", cancel("n2") + after(0))])
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"", cancel("unknown"))])
    read_confluent(kumquat.bootstrap, "orders", 1)
    if how == "kill":
        kumquat.kill()
    else:
        assert kumquat.stop() == 0
    kumquat.start()
    found = [status(kumquat, "orders", name) for name in ("n0", "n2", "n3", "unknown")]
    assert found == ["cancelled", "delivered", "pending", "remembered"]
    assert count(kumquat, "orders") == 4
    assert count(kumquat, "orders", from_=now() + 2 * HOUR) == 1
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"", cancel("n3"))])
    send_confluent(kumquat.bootstrap, "orders", [Sent(b"never", after(0) + named("unknown"))])
    assert count(kumquat, "orders") == 3
    assert last(kumquat, "orders", now() + 10) == [b"2"]


# The command line


def delay(on: TestBroker, subject: str, action: str, **arguments: object) -> tuple[int, Any]:
    """`kumquat delay …`: its exit code and what it says, in JSON."""
    command = [sys.executable, "-m", "kumquat", "delay", action]
    for name, value in {"admin": admin_url(on), "subject": subject, **arguments}.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    ran = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def test_the_command_line_lists_pages_cancels_and_moves(running: TestBroker, name: str) -> None:
    begin = now() + HOUR
    batch = [Sent(b"%d" % n, at(begin + n) + named(f"n{n}"), b"key %d" % n) for n in range(25)]
    send_confluent(running.bootstrap, name, batch)
    found, cursor = [], None
    while True:
        more = {"limit": 10} if cursor is None else {"limit": 10, "after": cursor}
        _, page = delay(running, name, "list", **more)
        found += page["items"]
        cursor = page["next"]
        if cursor is None:
            break
    assert [item["id"] for item in found] == [f"n{n}" for n in range(25)]
    assert [item["due"] for item in found] == [begin + n for n in range(25)]
    assert found[3]["key"] == "key 3"
    assert count(running, name, from_=begin + 5, to=begin + 7) == 2
    assert delay(running, name, "cancel", id="n0")[1]["status"] == "cancelled"
    assert delay(running, name, "cancel", schedule_id=found[1]["schedule_id"])[0] == 0
    code, _ = delay(running, name, "move", id="n2", due=now())
    assert code == 0
    (read,) = read_confluent(running.bootstrap, name, 1)
    assert read.value == b"2"
    assert count(running, name) == 22
    code, shown = delay(running, name, "cancel", id="n2")
    assert (code, shown["status"]) == (1, "delivered")
    code, shown = delay(running, name, "show", id="nobody")
    assert (code, shown["status"]) == (1, "unknown")
