"""What a member leaves behind: a message that comes early, uncounted, counted without a reason, or never.

Members that die, hang or leave without a commit have failed: what they held comes to others as the next
attempt, after a back-off. A planned leave and a rebalance cost nothing.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.groups.stories import committed, configure, everything, fill, have_read, lag
from compat_tests.groups.test_groups_tools import rows, tool
from compat_tests.members.fixture import CLIENTS, VARIANTS, Members
from compat_tests.members.remote import Member, wait
from compat_tests.retries.stories import crew, dead_letters, given, idle, now_ms, numbers
from compat_tests.support import SESSION_MS, eventually, mostly_long

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

__all__ = ["crew"]

pytestmark = [
    pytest.mark.differs("Kafka has no retries for consumer groups"),
    pytest.mark.kumquat(
        group_min_session_timeout_ms=1000,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=300,
    ),
]
TOPIC, GROUP = "orders", "workers"
LETTERS = f"{TOPIC}.{GROUP}.dlq"
COUNT = 20
BACKOFF_MS = 700
MORTAL: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "max_poll_records": 20}


def share(broker: TestBroker, **configs: str) -> None:
    configure(broker.bootstrap, GROUP, **{"consume.mode": "shared", **configs})


def fails(member: Member, how: str) -> int:
    """Gives when it was still a member, ms."""
    at = now_ms()
    if how == "killed":
        member.kill()
    elif how == "frozen":
        member.freeze()
    else:
        member.close()
    return at


FAILURES = [
    *((variant, "leaves") for variant in VARIANTS),
    *((variant, "killed") for variant in VARIANTS),
    *((variant, "frozen") for variant in CLIENTS),
]
QUICK = [(variant, "leaves") for variant in CLIENTS]


@pytest.mark.parametrize(("variant", "how"), mostly_long(FAILURES, short=QUICK))
def test_what_a_failed_member_held_comes_later_and_later_as_the_next_attempt(
    kumquat: TestBroker, crew: Members, variant: str, how: str
) -> None:
    share(kumquat, **{"retry.backoff.ms": str(BACKOFF_MS), "retry.backoff.multiplier": "2"})
    sent = fill(kumquat.bootstrap, TOPIC, COUNT)
    not_before = 0
    for attempt in (1, 2, 3):
        member = crew(variant, GROUP, TOPIC, alone=how != "leaves", **MORTAL)
        got = member.take(COUNT)
        assert sorted(each.value for each in got) == sorted(sent)
        assert {each.attempt for each in got} == {attempt}
        early = [each for each in got if each.at < not_before]
        assert not early, f"{len(early)} came early, one by {not_before - early[0].at} ms"
        if attempt < 3:
            not_before = fails(member, how) + BACKOFF_MS * attempt
    member.do("commit")
    eventually(partial(idle, kumquat, GROUP, TOPIC), "all is acked")
    assert committed(kumquat.bootstrap, GROUP, TOPIC) == COUNT


def _can_commit(member: Member, crowd: list[Member], written: int) -> bool:
    return bool(member.records) or have_read(crowd, written)


@pytest.mark.parametrize("variant", mostly_long(VARIANTS, short=CLIENTS))
def test_a_planned_leave_and_a_rebalance_cost_no_attempt_and_no_time(
    kumquat: TestBroker, crew: Members, variant: str
) -> None:
    """A back-off here outlasts the test."""
    share(kumquat, **{"retry.backoff.ms": "600000"})
    written = len(fill(kumquat.bootstrap, TOPIC, 200))
    crowd = [crew(variant, GROUP, TOPIC, max_poll_records=20) for _ in range(2)]
    for member in crowd:
        member.run(handler_ms=0.5)
    for leaving in range(3):
        written += len(fill(kumquat.bootstrap, TOPIC, 300, first=written))
        crowd.append(crew(variant, GROUP, TOPIC, max_poll_records=20))
        crowd[-1].run(handler_ms=0.5)
        wait(lambda: TOPIC in crowd[-1].assigned, "it shares")
        # A member that holds messages and has handled none has nothing to commit: its leave would count.
        wait(partial(_can_commit, crowd[leaving], crowd, written), "it has handled some")
        crowd[leaving].stop()
        crowd[leaving].do("commit")
        crowd[leaving].close()
    wait(partial(have_read, crowd, written), "all of them")
    eventually(partial(idle, kumquat, GROUP, TOPIC), "all is acked")
    again = [each for member in crowd for each in member.records if each.attempt > 1]
    assert not again, f"{len(again)} of {written} were counted"
    assert committed(kumquat.bootstrap, GROUP, TOPIC) == written


@pytest.mark.parametrize("variant", mostly_long(CLIENTS, short=CLIENTS[:1]))
def test_a_retry_that_waits_delays_nobody_and_lag_tools_count_it(
    kumquat: TestBroker, crew: Members, variant: str
) -> None:
    share(kumquat, **{"retry.backoff.ms": "600000"})
    fill(kumquat.bootstrap, TOPIC, 10)
    done_before = crew(variant, GROUP, TOPIC, max_poll_records=10)
    done_before.take(10)
    done_before.do("commit")
    committed_at = time.monotonic()
    eventually(lambda: time.monotonic() > committed_at + 0.2, "a commit just before a leave counts")
    fill(kumquat.bootstrap, TOPIC, 5, first=10)
    done_before.take(5)
    done_before.close()
    # A client that closes may not wait for the answer to its leave.
    eventually(lambda: numbers(kumquat, GROUP, TOPIC)["waiting"] == 5, "what it held waits")
    fill(kumquat.bootstrap, TOPIC, 1000, first=15)
    crowd = [crew(variant, GROUP, TOPIC) for _ in range(2)]
    for member in crowd:
        member.run()
    wait(partial(have_read, crowd, 1000), "all others")
    assert everything(crowd).keys() == {str(number) for number in range(15, 1015)}
    eventually(lambda: not numbers(kumquat, GROUP, TOPIC)["in_flight"], "all others are acked")
    found = numbers(kumquat, GROUP, TOPIC)
    assert (found["waiting"], found["again"], found["doomed"]) == (5, 0, 0)
    assert found["next_due"] > now_ms() + 60_000
    # A group's position is its first message that is not done with; so is the lag of all tools.
    assert committed(kumquat.bootstrap, GROUP, TOPIC) == 10
    assert lag(kumquat.bootstrap, GROUP, TOPIC) == 1005
    described = rows(tool(kumquat.bootstrap, "--describe", "--group", GROUP))
    assert {row["CURRENT-OFFSET"] for row in described} == {"10"}
    assert {row["LAG"] for row in described} == {"1005"}


@pytest.mark.long
@pytest.mark.parametrize("variant", ["kafka_python-range", "aiokafka-range", *VARIANTS[3:]])
def test_a_message_that_kills_its_consumers_becomes_a_dead_letter_and_no_other_does(
    kumquat: TestBroker, crew: Members, variant: str
) -> None:
    limit, poison = 3, "77"
    share(kumquat, **{"delivery.count.limit": str(limit), "retry.backoff.ms": "100"})
    sent = fill(kumquat.bootstrap, TOPIC, 120)
    working: list[Member] = []

    def restart() -> bool:
        """Processes that have died are started again, as a supervisor would."""
        alive = [member for member in working[-2:] if not member.host.ended]
        for _ in range(2 - len(alive)):
            member = crew(variant, GROUP, TOPIC, alone=True, dies_at=poison, **MORTAL)
            member.run()
            working.append(member)
        working.sort(key=lambda member: not member.host.ended)
        return idle(kumquat, GROUP, TOPIC)

    eventually(restart, "all are handled or dead", 3 * 90)
    deliveries = given(working, poison)
    assert [each.attempt for each in deliveries] == [1, 2, 3]
    assert sum(member.host.ended for member in working) == limit
    handled = {value for member in working for value in member.handled}
    assert handled == set(sent) - {poison}
    (letter,) = dead_letters(kumquat.bootstrap, LETTERS)
    assert letter.value == poison
    assert letter.headers["qmq-dead-reason"] == "attempts"
    assert letter.headers["qmq-dead-attempts"] == str(limit)
    assert letter.headers["qmq-dead-sequence"] == poison
    assert int(letter.headers["qmq-dead-last-ms"]) <= deliveries[-1].at
