"""confluent-kafka's ShareConsumer (2.16, a preview: no renew, no delivery count)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from compat_tests.groups.stories import fill
from compat_tests.shares.stories import (
    ACCEPT,
    REJECT,
    RELEASE,
    explicit,
    from_the_first,
    member,
    settle,
    some,
    succeeds,
    take,
    values,
)
from compat_tests.support import DEADLINE, eventually

if TYPE_CHECKING:
    from confluent_kafka import ShareConsumer, TopicPartition

HOLDER = """
import sys, time
from compat_tests.shares.stories import member, some
reader = member(*sys.argv[1:])
print(len(some(reader)), flush=True)
time.sleep(600)
"""


@pytest.fixture
def share(bootstrap: str, group: str, is_kafka: bool) -> str:
    from_the_first(bootstrap, group, is_kafka)
    return group


def only_new_comes(bootstrap: str, group: str, topic: str, number: int) -> None:
    """A message is written now; nothing else comes before it."""
    fill(bootstrap, topic, 1, first=number)
    with member(bootstrap, group, topic) as reader:
        assert values(some(reader)) == [str(number)]
        succeeds(reader)


def test_what_was_polled_is_accepted(bootstrap: str, topic: str, share: str) -> None:
    wanted = fill(bootstrap, topic, 50)
    with member(bootstrap, share, topic) as reader:
        got = take(reader, 50)
        assert values(got) == wanted
        assert [message.offset() for message in got] == list(range(50))
        succeeds(reader)
    only_new_comes(bootstrap, share, topic, 50)


def test_accept_release_and_reject(bootstrap: str, topic: str, share: str) -> None:
    fill(bootstrap, topic, 3)
    with explicit(bootstrap, share, topic) as reader:
        came: list[str] = []
        while len(came) < 4:
            for message in some(reader):
                (value,) = values([message])
                first = value not in came
                came.append(value)
                kinds = {"1": RELEASE, "2": REJECT} if first else {}
                reader.acknowledge(message, kinds.get(value, ACCEPT))
            succeeds(reader)
    assert sorted(came) == ["0", "1", "1", "2"]
    only_new_comes(bootstrap, share, topic, 3)


def test_what_is_released_comes_until_the_limit(
    bootstrap: str, topic: str, group: str, is_kafka: bool
) -> None:
    from_the_first(bootstrap, group, is_kafka, **{"share.delivery.count.limit": "2"})
    fill(bootstrap, topic, 1)
    with explicit(bootstrap, group, topic) as reader:
        for _ in range(2):
            got = some(reader)
            assert values(got) == ["0"]
            settle(reader, got, RELEASE)
    only_new_comes(bootstrap, group, topic, 1)


def test_the_callback_names_what_was_acknowledged(bootstrap: str, topic: str, share: str) -> None:
    fill(bootstrap, topic, 5)
    told: set[int] = set()
    errors: list[object] = []

    def callback(offsets: dict[TopicPartition, set[int]], error: object) -> None:
        for some_offsets in offsets.values():
            told.update(some_offsets)
        if error is not None:
            errors.append(error)

    with member(bootstrap, share, topic) as reader:
        reader.set_acknowledgement_commit_callback(callback)
        take(reader, 5)
        reader.commit_async()
        eventually(lambda: not list(reader.poll(0.1)) and len(told) == 5, "the callback names them")
    assert (told, errors) == ({0, 1, 2, 3, 4}, [])


def test_what_one_holds_when_it_closes_is_with_another(
    bootstrap: str, topic: str, share: str
) -> None:
    wanted = fill(bootstrap, topic, 20)
    with explicit(bootstrap, share, topic) as other:
        with explicit(bootstrap, share, topic) as holder:
            held = some(holder)
            assert len(held) >= 2
            settle(holder, held[:1], ACCEPT)
        assert sorted(accept(other, 19)) == sorted(wanted[1:])
    only_new_comes(bootstrap, share, topic, 20)


def test_what_a_killed_process_held_is_with_another(bootstrap: str, topic: str, share: str) -> None:
    wanted = fill(bootstrap, topic, 20)
    command = [sys.executable, "-c", HOLDER, bootstrap, share, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert int(holder.stdout.readline()) > 0
        finally:
            holder.kill()
    with explicit(bootstrap, share, topic) as other:
        assert sorted(accept(other, 20)) == sorted(wanted)
    only_new_comes(bootstrap, share, topic, 20)


def accept(reader: ShareConsumer, count: int) -> list[str]:
    """So many deliveries, each accepted, with as many polls as it takes."""
    got: list[str] = []
    while len(got) < count:
        came = some(reader)
        settle(reader, came, ACCEPT)
        got += values(came)
    return got


def test_several_share_without_overlap(bootstrap: str, topic: str, share: str) -> None:
    seen: list[Counter[str]] = [Counter() for _ in range(3)]
    enough = threading.Event()

    def read(number: int) -> None:
        with member(bootstrap, share, topic, max_poll_records=20) as reader:
            while not enough.is_set():
                seen[number].update(values(reader.poll(0.1)))
            if seen[number]:
                reader.commit_sync(DEADLINE)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    written = 0

    def all_have_some() -> bool:
        nonlocal written
        written += len(fill(bootstrap, topic, 200, first=written, batch=20))
        return written >= 2000 and all(seen)

    try:
        eventually(all_have_some, "each gets some")
        eventually(lambda: len(set().union(*seen)) == written, "all came")
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    total = sum(seen, Counter())
    assert not {value for value, count in total.items() if count > 1}
    assert len(total) == written
