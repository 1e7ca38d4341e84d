"""What the suites of other clients check of share groups, told as stories: SCENARIOS.md has the list.

With confluent-kafka's ShareConsumer, and by hand (raw.py) for what it cannot do."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from compat_tests.groups.stories import admin, fill
from compat_tests.shares.raw import RawShareConsumer, acquired
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
from compat_tests.shares.test_shares_confluent import HOLDER, accept, only_new_comes
from compat_tests.support import DEADLINE, eventually
from kumquat.gateway.wire import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSES = 6
"""A leave and its acknowledgements are on two connections: either may be handled first."""
BATCHES = {"one batch": (5, 1000), "batches of one": (5, 1), "a large batch": (1000, 1000)}


@pytest.fixture
def share(bootstrap: str, group: str, is_kafka: bool) -> str:
    from_the_first(bootstrap, group, is_kafka)
    return group


# --- closing -------------------------------------------------------------------------------------


def test_what_is_acknowledged_and_sent_with_a_close_never_comes_again(
    bootstrap: str, topic: str, share: str
) -> None:
    for number in range(CLOSES):
        (wanted,) = fill(bootstrap, topic, 1, first=number)
        with explicit(bootstrap, share, topic) as reader:
            got = some(reader)
            assert values(got) == [wanted]
            for message in got:
                reader.acknowledge(message, ACCEPT)
    only_new_comes(bootstrap, share, topic, CLOSES)


def test_what_is_not_acknowledged_comes_again_after_a_close(
    bootstrap: str, topic: str, share: str
) -> None:
    wanted = fill(bootstrap, topic, 10)
    for _ in range(2):
        with explicit(bootstrap, share, topic) as reader:
            assert values(some(reader)) == wanted
    with explicit(bootstrap, share, topic) as reader:
        assert accept(reader, 10) == wanted
    only_new_comes(bootstrap, share, topic, 10)


def test_of_what_a_close_settles_only_the_released_comes_to_who_waits(
    bootstrap: str, topic: str, share: str
) -> None:
    wanted = fill(bootstrap, topic, 9)
    with explicit(bootstrap, share, topic) as other:
        with explicit(bootstrap, share, topic) as reader:
            got = some(reader)
            assert values(got) == wanted
            other.poll(0.1)
            for number, message in enumerate(got):
                reader.acknowledge(message, (ACCEPT, RELEASE, REJECT)[number % 3])
        assert sorted(accept(other, 3)) == wanted[1::3]
    only_new_comes(bootstrap, share, topic, 9)


@pytest.mark.parametrize("by_fetch", [False, True])
def test_acks_that_arrive_after_the_leave_count_and_the_rest_is_with_another(
    bootstrap: str, topic: str, share: str, by_fetch: bool
) -> None:
    fill(bootstrap, topic, 3)
    with (
        RawShareConsumer(bootstrap, share, topic, "ann") as ann,
        RawShareConsumer(bootstrap, share, topic, "ben") as ben,
    ):
        ann.join()
        epoch = opened(ann, [(0, 2, 1)])
        ben.join()
        assert acquired(ben.fetch(0)) == []
        left = ann.call(ShareGroupHeartbeatRequest(share, "ann", -1), 1)
        assert left.error_code == 0
        assert acquired(ben.fetch(1)) == []
        answer = ann.acknowledge(epoch, [(0, 0, [1])])
        assert answer.responses[0].partitions[0].error_code == 0
        if by_fetch:
            closed = ann.fetch(-1, [(1, 1, [1])])
            assert closed.responses[0].partitions[0].acknowledge_error_code == 0
        else:
            closed = ann.acknowledge(-1, [(1, 1, [1])])
            assert closed.responses[0].partitions[0].error_code == 0
        assert acquired(ben.fetch(2, wait=10_000)) == [(2, 2, 2)]


def opened(reader: RawShareConsumer, wanted: list[tuple[int, int, int]]) -> int:
    """Fetches until that is acquired; gives the next epoch."""
    for epoch in range(100):
        if found := acquired(reader.fetch(epoch, wait=500)):
            assert found == wanted
            return epoch + 1
    raise AssertionError("nothing came")


# --- what a poll gives -----------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "batch"), BATCHES.values(), ids=BATCHES.keys())
def test_who_reads_alone_gets_all_with_its_first_poll(
    bootstrap: str, topic: str, share: str, count: int, batch: int
) -> None:
    wanted = fill(bootstrap, topic, count, batch=batch)
    with explicit(bootstrap, share, topic) as reader:
        got = some(reader)
        assert values(got) == wanted
        settle(reader, got, RELEASE)
        again = some(reader)
        assert values(again) == wanted
        settle(reader, again, ACCEPT)
    only_new_comes(bootstrap, share, topic, count)


def test_no_bytes_are_no_messages_and_few_are_a_batch(
    bootstrap: str, topic: str, share: str
) -> None:
    wanted = fill(bootstrap, topic, 5, batch=1)
    with member(bootstrap, share, topic, fetch_max_bytes=0) as reader:
        assert [message for _ in range(5) for message in reader.poll(0.3)] == []
    with member(bootstrap, share, topic, fetch_max_bytes=1) as reader:
        for value in wanted:
            assert values(some(reader)) == [value]
        succeeds(reader)


@pytest.mark.parametrize("size", [0, 200_000])
def test_an_empty_message_and_one_that_is_larger_than_a_fetch_come(
    bootstrap: str, topic: str, share: str, size: int
) -> None:
    writer = Producer({"bootstrap.servers": bootstrap})
    writer.produce(topic, b"x" * size, key=b"")
    assert writer.flush(DEADLINE) == 0
    with member(bootstrap, share, topic, fetch_max_bytes=1000) as reader:
        (got,) = some(reader)
        assert (got.key(), got.value()) == (b"", b"x" * size)
        succeeds(reader)


# --- a second one ------------------------------------------------------------------------------------


def test_what_a_killed_one_held_is_at_once_with_one_that_acknowledges_nothing(
    bootstrap: str, topic: str, share: str
) -> None:
    wanted = fill(bootstrap, topic, 20)
    command = [sys.executable, "-c", HOLDER, bootstrap, share, topic]
    with explicit(bootstrap, share, topic) as other:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            try:
                assert holder.stdout is not None
                assert int(holder.stdout.readline()) > 0
                list(other.poll(0.1))
            finally:
                holder.kill()
        began, came = time.monotonic(), set[str]()
        while len(came) < 20:
            came.update(values(some(other)))
        assert came == set(wanted)
        assert time.monotonic() - began < DEADLINE / 3, "it must not wait for a lock or a session"


def test_each_type_of_acknowledgement_as_a_second_one_sees_it(
    bootstrap: str, topic: str, share: str
) -> None:
    wanted = fill(bootstrap, topic, 12)
    with explicit(bootstrap, share, topic) as first:
        got = some(first)
        assert values(got) == wanted
        for number, message in enumerate(got):
            first.acknowledge(message, (ACCEPT, RELEASE, REJECT)[number % 3])
        first.commit_async()
        with explicit(bootstrap, share, topic) as second:
            came: set[str] = set()

            def all_came() -> bool:
                for reader in (first, second):
                    more = list(reader.poll(0.1))
                    for message in more:
                        reader.acknowledge(message, ACCEPT)
                    came.update(values(more))
                return came == set(wanted[1::3])

            eventually(all_came, "what was released, and nothing else, comes again")
            second.commit_sync(DEADLINE)
            first.commit_sync(DEADLINE)
    only_new_comes(bootstrap, share, topic, 12)


def test_groups_do_not_take_from_each_other(
    bootstrap: str, topic: str, names: Callable[[], str], is_kafka: bool
) -> None:
    wanted = fill(bootstrap, topic, 30)
    for group in [names() for _ in range(3)]:
        from_the_first(bootstrap, group, is_kafka)
        with member(bootstrap, group, topic) as reader:
            assert values(take(reader, 30)) == wanted
            succeeds(reader)


# --- topics that change ------------------------------------------------------------------------------


def test_what_was_read_before_the_subscription_changed_is_still_acknowledged(
    bootstrap: str, make_topic: Callable[..., str], share: str
) -> None:
    old, new = make_topic(), make_topic()
    fill(bootstrap, old, 5)
    fill(bootstrap, new, 5)
    with explicit(bootstrap, share, old) as reader:
        got = some(reader)
        reader.subscribe([new])
        settle(reader, got, ACCEPT)
        assert {message.topic() for message in take(reader, 5)} == {new}
    only_new_comes(bootstrap, share, old, 5)


def test_acknowledgements_of_a_deleted_topic_end_and_the_consumer_goes_on(
    bootstrap: str, make_topic: Callable[..., str], share: str
) -> None:
    gone, stays = make_topic(), make_topic()
    fill(bootstrap, gone, 3)
    with explicit(bootstrap, share, gone) as reader:
        reader.subscribe([gone, stays])
        got = some(reader)
        for future in admin(bootstrap).delete_topics([gone]).values():
            future.result(DEADLINE)
        for message in got:
            reader.acknowledge(message, ACCEPT)
        reader.commit_sync(DEADLINE)  # with whichever result: it returns
        fill(bootstrap, stays, 3)
        seen: set[str | None] = set()

        def goes_on() -> bool:
            for message in reader.poll(0.2):
                if message.error() is None:
                    seen.add(message.topic())
                    reader.acknowledge(message, ACCEPT)
            return stays in seen

        eventually(goes_on, "it reads the other topic")
