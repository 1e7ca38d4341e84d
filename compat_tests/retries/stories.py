"""What the stories of retries share: a group's numbers as the admin endpoint has them, and dead letters."""

from __future__ import annotations

import json
import time
import urllib.parse
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.members.fixture import Hosts, Members
from compat_tests.support import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compat_tests.members.client import Record
    from compat_tests.members.remote import Member
    from kumquat.testing import TestBroker


@pytest.fixture
def crew(kumquat: TestBroker, hosts: Hosts) -> Iterator[Members]:
    """Members of groups of the test's own broker."""
    made = Members(kumquat.bootstrap, hosts)
    yield made
    made.close()


def now_ms() -> int:
    return int(time.time() * 1000)


def described(broker: TestBroker, group: str) -> dict[str, Any] | None:
    """As /groups/describe says it; None: there is no such group."""
    host = urllib.parse.urlsplit(broker.admin).netloc
    connection = HTTPConnection(host, timeout=DEADLINE)
    try:
        query = urllib.parse.urlencode({"group": group})
        connection.request("GET", f"/groups/describe?{query}")
        answer = connection.getresponse()
        found: dict[str, Any] = json.load(answer)
        return found if answer.status == 200 else None
    finally:
        connection.close()


def numbers(broker: TestBroker, group: str, subject: str) -> dict[str, Any]:
    """The row of one subject; empty when the group does not read it yet."""
    found = described(broker, group)
    for row in [] if found is None else found["subjects"]:
        if row["subject"] == subject:
            return dict(row)
    return {}


class Letter(NamedTuple):
    value: str
    headers: dict[str, str]


def dead_letters(bootstrap: str, subject: str) -> list[Letter]:
    """All that are there now; none if there is no such subject."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads-letters"})
    try:
        if subject not in reader.list_topics(timeout=DEADLINE).topics:
            return []
        ends = reader.get_watermark_offsets(TopicPartition(subject, 0), DEADLINE)
        assert ends is not None
        reader.assign([TopicPartition(subject, 0, 0)])
        found: list[Letter] = []
        deadline = time.monotonic() + DEADLINE
        while len(found) < ends[1]:
            assert time.monotonic() < deadline, f"{len(found)} of {ends[1]} dead letters came"
            for message in reader.consume(500, 0.2):
                assert message.error() is None, message.error()
                headers: Any = message.headers() or []
                text = {name: (value or b"").decode() for name, value in headers}
                value: Any = message.value() or b""
                found.append(Letter(value.decode(), text))
    finally:
        reader.close()
    return found


def given(members: Iterable[Member], value: str) -> list[Record]:
    """All deliveries of a message, in the order of the clients' clocks."""
    found = [each for member in members for each in member.records if each.value == value]
    return sorted(found, key=lambda each: each.at)


def idle(broker: TestBroker, group: str, subject: str) -> bool:
    """Whether nothing is left to do for a group."""
    found = numbers(broker, group, subject)
    left = ("lag", "in_flight", "again", "waiting", "doomed")
    return bool(found) and not any(found[name] for name in left)


class Handled:
    """What members have handled: the broker has answered their commits. It may never come again."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members
        self._marks: list[tuple[int, set[str]]] = []

    def values(self) -> set[str]:
        return {value for member in self._members for value in list(member.handled)}

    def count(self) -> int:
        return len(self.values())

    def ended(self) -> set[str]:
        """With those whose commit failed: the broker may have it, although the answer was lost."""
        return self.values().union(*(member.refused for member in self._members))

    def mark(self) -> None:
        """From now on it is looked for."""
        self._marks.append((now_ms(), self.values()))

    def again(self) -> list[Record]:
        """What came although it had been handled before a mark."""
        return [
            each
            for at, handled in self._marks
            for member in self._members
            for each in member.records
            if each.at > at and each.value in handled
        ]
