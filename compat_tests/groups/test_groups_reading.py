"""One member of a group reads: where it begins, what it commits, where the next one goes on.

Kafka's stories, told by every client and way of assigning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.groups.stories import committed, fill, lag, values
from compat_tests.members.fixture import CLIENTS, EACH_VARIANT, Members
from compat_tests.members.remote import Failed
from compat_tests.support import T0, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

NO_OFFSET = {
    "NoOffsetForPartitionError",
    "NoOffsetForPartitionException",
    "_AUTO_OFFSET_RESET",
    "_NO_OFFSET",
}
"""The clients' names for: nothing committed, and no reset wanted."""


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_a_member_restarted_with_the_same_group_reads_on(
    bootstrap: str, members: Members, topic: str, group: str, variant: str
) -> None:
    sent = fill(bootstrap, topic, 60)
    first = members(variant, group, topic, max_poll_records=20)
    got = first.take(20)
    assert values(got) == sent[:20]
    assert [record.offset for record in got] == list(range(20))
    first.do("commit")
    assert first.offset("committed", topic) == first.offset("position", topic) == 20
    assert values(first.take(20)) == sent[20:40]
    first.close()
    assert committed(bootstrap, group, topic) == 20
    second = members(variant, group, topic, max_poll_records=20)
    assert values(second.take(40)) == sent[20:]
    second.do("commit")
    assert lag(bootstrap, group, topic) == 0


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_auto_commit_at_close_leaves_nothing_to_read_again(
    bootstrap: str, members: Members, topic: str, group: str, variant: str
) -> None:
    sent = fill(bootstrap, topic, 30)
    settings: dict[str, Any] = {"enable_auto_commit": True, "max_poll_records": 10}
    first = members(variant, group, topic, **settings)
    assert values(first.take(10)) == sent[:10]
    first.close()
    assert committed(bootstrap, group, topic) == 10
    second = members(variant, group, topic, **settings)
    assert values(second.take(20)) == sent[10:]


@pytest.mark.parametrize("variant", CLIENTS)
def test_a_member_seeks_asks_and_commits_what_it_likes(
    bootstrap: str, members: Members, topic: str, group: str, variant: str
) -> None:
    sent = fill(bootstrap, topic, 50)
    member = members(variant, group, topic, max_poll_records=10)
    assert member.offset("committed", topic) is None
    assert values(member.take(10)) == sent[:10]
    member.do("seek", topic, 40)
    assert values(member.take(10)) == sent[40:]
    member.do("seek", topic, "beginning")
    assert values(member.take(10)) == sent[:10]
    assert member.ends(topic) == (0, 50)
    assert member.offset("at", topic, T0 + 255) == 26
    assert member.offset("at", topic, T0 + 10_000) is None
    member.do("commit", topic, 33, "by hand")
    assert member.offset("committed", topic) == 33
    assert member.offset("position", topic) == 10
    member.do("pause", topic)
    with pytest.raises(Failed, match="only 0 of 1"):
        member.take(1, seconds=0.5)
    member.do("resume", topic)
    assert values(member.take(10)) == sent[10:20]
    member.close()
    second = members(variant, group, topic, max_poll_records=10)
    assert values(second.take(10)) == sent[33:43]


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_a_new_group_begins_where_its_member_says(
    bootstrap: str, members: Members, topic: str, names: Callable[[], str], variant: str
) -> None:
    old = fill(bootstrap, topic, 5)
    early = members(variant, names(), topic, auto_offset_reset="earliest")
    assert values(early.take(5)) == old
    refuses = members(variant, names(), topic, auto_offset_reset="none")
    with pytest.raises(Failed) as failed:
        refuses.take(1)
    assert failed.value.kind in NO_OFFSET
    late = members(variant, names(), topic, auto_offset_reset="latest")
    late.run(commit="never")
    sent: list[str] = []

    def something_new_came() -> bool:
        sent.extend(fill(bootstrap, topic, 1, first=5 + len(sent)))
        return bool(late.records)

    eventually(something_new_came, "what was written after it began")
    late.wait(lambda: late.values()[-1] == sent[-1], "the last one")
    assert late.values() == sent[-len(late.records) :]


def test_a_new_group_of_latest_on_an_idle_topic_keeps_its_place(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    fill(bootstrap, topic, 5)
    settings: dict[str, Any] = {"auto_offset_reset": "latest", "enable_auto_commit": True}
    first = members("java-range", group, topic, **settings)
    first.run(commit="never")
    first.wait_assigned(topic)
    first.stop()
    assert first.offset("position", topic) == 5
    first.close()
    assert committed(bootstrap, group, topic) == 5
    fill(bootstrap, topic, 3, first=5)
    second = members("kafka_python-range", group, topic, **settings)
    assert values(second.take(3)) == ["5", "6", "7"]
