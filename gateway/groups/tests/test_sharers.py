"""Who may share, and what becomes of a group with a member that may not."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from kumquat.core.delivery import actions
from kumquat.gateway.groups.assignment.sharers import (
    AIOKAFKA,
    KAFKA_GO,
    KAFKA_JS,
    UNNAMED,
    may_share,
    software_of,
)
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.membership.protocol import read_subscription
from kumquat.gateway.groups.membership.roster import Step
from kumquat.gateway.groups.tests.clients import Classic, Client
from kumquat.gateway.groups.tests.simulation import GROUP, Simulation
from kumquat.gateway.groups.tests.test_classic import holds, live, owner_and_joiner, step_of

PLAIN = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
"""As aiokafka and KafkaJS write it: version 0, one topic, no user data."""
SHORT = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"
"""As kafka-go does: version 1, and the body of version 0."""
WHOLE = SHORT + b"\0\0\0\0"


@pytest.mark.parametrize(
    ("asked", "joins", "offered", "metadata", "software"),
    [
        (0, 5, ["roundrobin"], PLAIN, AIOKAFKA),
        (0, 5, ["range", "sticky"], PLAIN, AIOKAFKA),
        (0, 2, ["range", "roundrobin"], SHORT, KAFKA_GO),
        (0, 1, ["rack-affinity"], SHORT, KAFKA_GO),
        (2, 5, ["RoundRobinAssigner"], PLAIN, KAFKA_JS),
        (2, 5, ["RoundRobinAssigner"], SHORT, KAFKA_JS),
        (-1, 5, ["RoundRobinAssigner"], PLAIN, KAFKA_JS),
        (0, 2, ["range", "roundrobin"], PLAIN, UNNAMED),
        (0, 5, ["range"], WHOLE, UNNAMED),
        (0, 5, ["cooperative-sticky"], PLAIN, UNNAMED),
        (0, 5, ["range"], SHORT, UNNAMED),
        (2, 5, ["range"], PLAIN, UNNAMED),
        (2, 5, ["roundrobin"], PLAIN, UNNAMED),
        (-1, 5, ["range"], PLAIN, UNNAMED),
        (-1, 2, ["range"], SHORT, UNNAMED),
        (0, 9, ["range"], PLAIN, UNNAMED),
    ],
)
def test_a_client_without_a_name_is_known_by_all_its_signs_or_not_at_all(
    asked: int, joins: int, offered: list[str], metadata: bytes, software: str
) -> None:
    caller = Caller("aiokafka-0.14.0", "/h", {}, asked=asked, api_version=joins)
    assert software_of(caller, offered, read_subscription(metadata)) == software


def test_a_name_counts_for_more_than_signs() -> None:
    caller = Caller("aiokafka", "/h", {}, "other", "1.2", asked=4, api_version=5)
    assert software_of(caller, ["RoundRobinAssigner"], read_subscription(PLAIN)) == "other 1.2"
    assert not may_share("other 1.2")
    assert may_share("confluent-kafka-python 2.16.1-rdkafka-2.16.0")
    assert not may_share(UNNAMED)
    assert not may_share("")


def stranger(world: Simulation, name: str = "stranger", **how: Any) -> Classic:
    return Classic(world, name, ["t"], software="other", **how)


def why(world: Simulation) -> str:
    return world.coordinator.why_exclusive(world.groups.by_name[GROUP])


def end(world: Simulation, *clients: Client) -> None:
    """All is read and committed."""
    for _ in range(60):
        live(world, *clients, seconds=1, reads=20)
        for client in clients:
            client.commit()


def test_a_group_with_a_client_that_is_not_known_stays_exclusive_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    world, owner, _ = owner_and_joiner()
    other = stranger(world)
    end(world, owner, other)
    assert sorted([holds(world, owner), holds(world, other)]) == ["none", "plain"]
    assert set(world.handled["t"].values()) == {1}
    reason = f"the client of member {other.member_id} (other) is not known to share"
    assert why(world) == reason
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"group g reads t with one member at a time: {reason}. consume.mode=shared shares all the same"
    ]
    other.leave()
    joiner = Classic(world, "joiner", ["t"])
    live(world, owner, joiner, reads=1)
    assert (holds(world, owner), holds(world, joiner)) == ("pull", "pull")
    assert why(world) == ""


def test_a_sink_task_of_connect_keeps_its_group_exclusive_and_says_so() -> None:
    assert may_share("apache-kafka-java 4.3.1", "consumer-1")
    assert not may_share("apache-kafka-java 4.3.1", "connector-consumer-s3-sink-0")
    world, owner, _ = owner_and_joiner()
    tasks = [Classic(world, f"task{n}", ["t"], software="apache-kafka-java") for n in range(2)]
    for n, task in enumerate(tasks):
        task.caller = replace(task.caller, client_id=f"connector-consumer-s3-sink-{n}")
    owner.leave()
    end(world, *tasks)
    assert sorted(holds(world, task) for task in tasks) == ["none", "plain"]
    assert set(world.handled["t"].values()) == {1}
    assert "is a sink task of Kafka Connect" in why(world)
    world.restart()
    for task in tasks:
        task.reconnect()
        task.caller = replace(task.caller, client_id="connector-consumer-s3-sink-0")
    assert "is a sink task of Kafka Connect" in why(world)
    world.set_mode("shared")
    live(world, *tasks, reads=1)
    assert [holds(world, task) for task in tasks] == ["pull", "pull"]


def test_a_mode_that_is_set_overrides_the_list() -> None:
    world, owner, _ = owner_and_joiner()
    world.set_mode("shared")
    other = stranger(world)
    live(world, owner, other, reads=1)
    assert (holds(world, owner), holds(world, other)) == ("pull", "pull")
    assert why(world) == ""
    world.set_mode("auto")
    end(world, owner, other)
    assert sorted([holds(world, owner), holds(world, other)]) == ["none", "plain"]
    assert set(world.handled["t"].values()) == {1}


def test_a_group_that_shares_drains_before_a_stranger_gets_anything() -> None:
    world, owner, joiner = owner_and_joiner()
    live(world, owner, joiner, reads=1)
    other = stranger(world)
    live(world, other, seconds=2, reads=1)
    assert step_of(world) is Step.DRAINING
    assert holds(world, other) == "none"
    end(world, owner, joiner, other)
    held = sorted(holds(world, client) for client in (owner, joiner, other))
    assert held == ["none", "none", "plain"]
    assert not world.excused["t"]
    assert world.handled["t"].keys() == set(range(100))
    assert set(world.handled["t"].values()) == {1}


def test_sharers_that_do_not_ack_go_on_and_the_stranger_stands_by() -> None:
    world, owner, joiner = owner_and_joiner()
    live(world, owner, joiner, reads=1)
    other = stranger(world)
    live(world, owner, joiner, other, seconds=20, reads=1)
    assert [holds(world, c) for c in (owner, joiner, other)] == ["pull", "pull", "none"]
    assert why(world)


def test_a_stranger_that_is_left_alone_reads_on_from_the_lowest_unacked() -> None:
    """Nobody is there who could drain; what others had acked above it comes again."""
    world, owner, joiner = owner_and_joiner()
    live(world, owner, joiner, seconds=4, reads=5)
    owner.commit()
    for gone in (owner, joiner):
        gone.lost()
    world.pass_time(10.0)
    assert world.groups.by_name[GROUP].progress[1].shared
    other = stranger(world)
    end(world, other)
    assert holds(world, other) == "plain"
    assert world.handled["t"].keys() == set(range(100)), "nothing is lost"
    twice = {n for n, times in world.handled["t"].items() if times > 1}
    assert twice <= world.excused["t"]


def test_a_member_that_comes_again_on_a_connection_without_a_name_is_still_known() -> None:
    world, owner, joiner = owner_and_joiner()
    live(world, owner, joiner, reads=1)
    owner.software = ""
    owner.reconnect()
    group = world.groups.by_name[GROUP]
    world.coordinator.request_rebalance(group, owner.member_id, world.now)
    generation = owner.generation
    live(world, owner, joiner, reads=1)
    assert owner.generation > generation
    assert (holds(world, owner), holds(world, joiner)) == ("pull", "pull")
    assert why(world) == ""


def test_an_owner_that_comes_back_without_a_name_while_others_wait_for_it_lets_go() -> None:
    world, owner, joiner = owner_and_joiner(software="librdkafka")
    live(world, joiner, seconds=2)
    assert step_of(world) is Step.OPENING
    owner.software = ""
    owner.reconnect()
    live(world, owner, joiner, reads=1)
    assert (holds(world, owner), holds(world, joiner)) == ("pull", "pull")
    assert why(world) == ""


def test_members_that_were_stored_without_their_software_share_on_and_are_asked_what_they_are() -> (
    None
):
    world, owner, joiner = owner_and_joiner()
    live(world, owner, joiner, reads=1)
    world.log = [_as_before(action) for action in world.log]
    world.restart()
    for client in (owner, joiner):
        client.broker_restarted()
    generations = owner.generation, joiner.generation
    assert step_of(world) is Step.SHARING
    live(world, owner, joiner, reads=1)
    assert (holds(world, owner), holds(world, joiner)) == ("pull", "pull")
    assert owner.generation > generations[0]
    assert joiner.generation > generations[1]
    members = world.groups.by_name[GROUP].members.values()
    assert {member.software for member in members} == {"kafka-python"}


def _as_before(action: actions.Action) -> actions.Action:
    if not isinstance(action, actions.Member):
        return action
    fields = {name: value for name, value in action.fields.items() if name != "software"}
    return actions.Member(action.gid, fields)
