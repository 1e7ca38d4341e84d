"""A backlog on which one member has worked alone is shared with those who come later.

librdkafka at its default settings is the hard case: it goes on asking until 100,000 messages are queued,
and commits what it has handled only every five seconds. How long it takes, and how even the shares are, is
measured in bench/scenarios/sharing.py.
"""

from __future__ import annotations

import pytest

from compat_tests.groups.stories import configure, everything, fill, lag
from compat_tests.members.fixture import Members
from compat_tests.members.remote import wait
from compat_tests.support import DEADLINE, eventually, mostly_long

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")
SLOW_MS = 50
"""At that pace the backlog lasts ten minutes: it is not gone before the late ones are there."""
BACKLOG = 15_000


@pytest.mark.parametrize("mode", mostly_long(["auto", "shared"], short=["auto"]))
def test_late_comers_get_their_share_of_what_one_member_had_queued(
    bootstrap: str, members: Members, topic: str, group: str, mode: str
) -> None:
    configure(bootstrap, group, **{"consume.mode": mode})
    fill(bootstrap, topic, BACKLOG)
    first = members("confluent-range", group, topic, enable_auto_commit=True, max_poll_records=1)
    first.run(commit="never", handler_ms=SLOW_MS)
    first.wait(lambda: len(first.records) >= 50, "it is at work")
    late = [
        members(variant, group, topic, enable_auto_commit=True, max_poll_records=10)
        for variant in ("confluent-consumer", "aiokafka-range", "java-range")
    ]
    crowd = [first, *late]
    for member in late:
        member.run(commit="never", handler_ms=SLOW_MS)
    wait(lambda: all(member.records for member in late), lambda: f"each its share: {crowd}")
    for member in crowd:
        member.run(commit="never")
    wait(lambda: len(everything(crowd)) == BACKLOG, "all of them", 2 * DEADLINE)
    for member in crowd:
        member.close()
    eventually(lambda: lag(bootstrap, group, topic) == 0, "all is committed")


def test_members_that_commit_seldom_are_not_stopped_by_windows(
    bootstrap: str, members: Members, topic: str, shared: str
) -> None:
    """Auto-commit every five seconds must not be a rate limit."""
    count = 40_000
    fill(bootstrap, topic, count)
    crowd = [members("confluent-range", shared, topic, enable_auto_commit=True) for _ in range(2)]
    for member in crowd:
        member.run(commit="never")
    wait(lambda: len(everything(crowd)) == count, "all of them", 120)
    assert everything(crowd).total() == count
