"""What a group subscribes to: several topics, patterns, topics that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.groups.stories import PULL, everything, fill, lag
from compat_tests.members.fixture import CLIENTS, Members
from compat_tests.members.remote import wait
from compat_tests.support import eventually
from compat_tests.wire.connection import Wire, create_topic, delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable

BY_PATTERN = [
    "kafka_python-range",
    "aiokafka-range",
    "confluent-range",
    "java-range",
    "java-consumer",
]


def watchful(variant: str) -> dict[str, Any]:
    """Soon sees new topics, where it is the client who looks; and makes none."""
    if "confluent" in variant:
        return {"topic_metadata_refresh_interval_ms": 500}
    if "aiokafka" in variant:
        return {"metadata_max_age_ms": 500}
    return {"metadata_max_age_ms": 500, "allow_auto_create_topics": False}


@pytest.mark.parametrize("variant", CLIENTS)
def test_one_member_reads_several_topics_each_in_order(
    bootstrap: str, members: Members, make_topic: Callable[[], str], group: str, variant: str
) -> None:
    topics = [make_topic() for _ in range(5)]
    sent = {topic: fill(bootstrap, topic, 20) for topic in topics}
    member = members(variant, group, *topics)
    member.run()
    member.wait(lambda: len(member.records) == 100, "all of them")
    for topic in topics:
        assert [r.value for r in member.records if r.topic == topic] == sent[topic]
    member.close()
    assert [lag(bootstrap, group, topic) for topic in topics] == [0] * 5


@pytest.mark.parametrize("variant", BY_PATTERN)
def test_a_pattern_takes_in_topics_that_are_made_later(
    bootstrap: str, members: Members, wire: Wire, names: Callable[[], str], group: str, variant: str
) -> None:
    prefix = names()
    create_topic(wire, f"{prefix}-a")
    create_topic(wire, f"other-{prefix}")
    fill(bootstrap, f"{prefix}-a", 3)
    fill(bootstrap, f"other-{prefix}", 3)
    member = members(variant, group, pattern=f"{prefix}-.*", **watchful(variant))
    member.run()
    member.wait(lambda: len(member.records) == 3, "the first topic's")
    create_topic(wire, f"{prefix}-b")
    fill(bootstrap, f"{prefix}-b", 4)
    member.wait(lambda: len(member.records) == 7, "the second topic's")
    assert {record.topic for record in member.records} == {f"{prefix}-a", f"{prefix}-b"}


@pytest.mark.parametrize("variant", ["confluent-range", "java-range", "java-consumer"])
def test_a_topic_that_is_made_after_it_was_subscribed_to_is_read(
    bootstrap: str, members: Members, wire: Wire, name: str, group: str, variant: str
) -> None:
    member = members(variant, group, name, **watchful(variant))
    member.run()
    create_topic(wire, name)
    fill(bootstrap, name, 5)
    member.wait(lambda: len(member.records) == 5, "all of them")


@pytest.mark.parametrize("variant", ["confluent-cooperative", "confluent-consumer"])
def test_a_topic_that_is_deleted_takes_its_offsets_with_it(
    bootstrap: str,
    members: Members,
    wire: Wire,
    make_topic: Callable[[], str],
    group: str,
    variant: str,
) -> None:
    kept, goes = make_topic(), make_topic()
    fill(bootstrap, kept, 5)
    fill(bootstrap, goes, 5)
    member = members(variant, group, kept, goes, **watchful(variant))
    member.run()
    member.wait(lambda: len(member.records) == 10, "all of them")
    delete_topic(wire, goes)
    fill(bootstrap, kept, 5, first=5)
    member.wait(lambda: sum(r.topic == kept for r in member.records) == 10, "it reads on")
    member.close()
    create_topic(wire, goes)
    fill(bootstrap, goes, 3, first=100)
    again = members("aiokafka-range", group, kept, goes)
    again.run()
    again.wait(lambda: len(again.records) == 3, "the new topic's, from its beginning")
    assert {record.topic for record in again.records} == {goes}


@pytest.mark.parametrize("variant", CLIENTS)
def test_a_subscription_is_changed(
    bootstrap: str, members: Members, make_topic: Callable[[], str], group: str, variant: str
) -> None:
    first, second = make_topic(), make_topic()
    fill(bootstrap, first, 5)
    fill(bootstrap, second, 5)
    member = members(variant, group, first)
    member.run()
    member.wait(lambda: len(member.records) == 5, "the first topic's")
    member.do("subscribe", second)
    member.wait(lambda: len(member.records) == 10, "the second topic's")
    fill(bootstrap, first, 5, first=5)
    member.do("subscribe", first, second)
    member.wait(lambda: len(member.records) == 15, "what came meanwhile")
    assert len(set(member.records)) == 15


@pytest.mark.differs("Kafka gives a partition to one member of a group")
def test_members_share_each_of_several_subjects_with_those_who_subscribe_to_it(
    bootstrap: str, members: Members, make_topic: Callable[[], str], group: str
) -> None:
    one, two, three = topics = [make_topic() for _ in range(3)]
    crowd = [
        members("java-cooperative", group, one, two),
        members("confluent-consumer", group, two, three),
        members("kafka_python-range", group, two),
        members("aiokafka-range", group, one, two, three),
    ]
    for member in crowd:
        member.run()
    written = dict.fromkeys(topics, 0)

    def all_share() -> bool:
        for topic in topics:
            written[topic] += len(fill(bootstrap, topic, 20, first=written[topic]))
        return all(
            any(r.topic == two and r.offset >= PULL for r in member.records) for member in crowd
        )

    eventually(all_share, "all share the second")

    def got(topic: str) -> set[str]:
        return {r.value for member in crowd for r in member.records if r.topic == topic}

    wait(lambda: all(len(got(topic)) == written[topic] for topic in topics), "all of them")
    assert not any(r.topic == three for r in crowd[0].records + crowd[2].records)
    eventually(
        lambda: [lag(bootstrap, group, topic) for topic in topics] == [0, 0, 0], "all is committed"
    )


@pytest.mark.differs("Kafka gives a partition to one member of a group")
def test_members_share_subjects_that_a_pattern_finds(
    bootstrap: str, members: Members, wire: Wire, names: Callable[[], str], shared: str
) -> None:
    prefix = names()
    create_topic(wire, f"{prefix}-a")
    crowd = [
        members(variant, shared, pattern=f"{prefix}-.*", **watchful(variant))
        for variant in ("java-consumer", "confluent-range", "aiokafka-range")
    ]
    for member in crowd:
        member.run()
    wait(lambda: all(member.assigned for member in crowd), "all hold the first")
    create_topic(wire, f"{prefix}-b")
    wait(lambda: all(len(member.assigned) == 2 for member in crowd), "all hold both")
    for end in "ab":
        fill(bootstrap, f"{prefix}-{end}", 300)
    wait(lambda: sum(len(member.records) for member in crowd) == 600, "all of them")
    assert len(everything(crowd)) == 300
