"""Kafka's own kafka-consumer-groups, as it is: lag, members, resets by offset and by time.

A JVM for each command: few, and each looks at much.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from bench.brokers.jars import java, tool_jars
from compat_tests.groups.stories import committed, everything, fill, lag
from compat_tests.members.fixture import JVM, Members
from compat_tests.members.remote import wait
from compat_tests.support import DEADLINE, T0, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Rows = list[dict[str, str]]


def tool(bootstrap: str, *arguments: str, name: str = TOOL) -> str:
    jars = ":".join(map(str, tool_jars()))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = [java(), *JVM, quiet, "-cp", jars, name, "--bootstrap-server", bootstrap, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=3 * DEADLINE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(output: str) -> Rows:
    """The table in it, by its column heads."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    begin = next(i for i, line in enumerate(lines) if line[0] == "GROUP")
    heads = lines[begin]
    return [dict(zip(heads, line, strict=False)) for line in lines[begin + 1 :]]


def test_a_group_at_work_is_shown_with_its_lag(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    fill(bootstrap, topic, 40)
    member = members("confluent-cooperative", group, topic, max_poll_records=30)
    member.take(30)
    member.do("commit")
    (row,) = rows(tool(bootstrap, "--describe", "--group", group))
    assert row["TOPIC"] == topic
    assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("30", "40", "10")
    assert row["CLIENT-ID"] == member.name


@pytest.mark.long
def test_an_empty_group_is_reset_by_time_and_by_offset_and_deleted(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    fill(bootstrap, topic, 50)
    member = members("java-range", group, topic)
    member.take(50)
    member.do("commit")
    member.close()
    at = datetime.fromtimestamp((T0 + 200) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    reset = ("--reset-offsets", "--execute", "--group", group, "--topic", topic)
    (row,) = rows(tool(bootstrap, *reset, "--to-datetime", at))
    assert row["NEW-OFFSET"] == "20"
    assert committed(bootstrap, group, topic) == 20
    (row,) = rows(tool(bootstrap, *reset, "--shift-by", "-15"))
    assert row["NEW-OFFSET"] == "5"
    again = members("aiokafka-range", group, topic)
    assert [record.value for record in again.take(45)] == [str(n) for n in range(5, 50)]
    again.close()
    assert "success" in tool(bootstrap, "--delete", "--group", group)
    assert group not in tool(bootstrap, "--list").split()


@pytest.mark.long
@pytest.mark.differs("Kafka gives a partition to one member of a group")
def test_a_group_that_shares_is_shown_and_reset(
    bootstrap: str, members: Members, topic: str, shared_groups: Callable[[], str]
) -> None:
    group = shared_groups()
    fill(bootstrap, topic, 200)
    both = [members(variant, group, topic) for variant in ("java-range", "confluent-range")]
    for member in both:
        member.run()
    wait(lambda: everything(both).total() == 200, "all of them")
    eventually(lambda: lag(bootstrap, group, topic) == 0, "all is committed")
    shown = rows(tool(bootstrap, "--describe", "--group", group))
    assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in shown] == [("200", "0")]
    assert {row["CLIENT-ID"] for row in shown} <= {member.name for member in both}
    crew = rows(tool(bootstrap, "--describe", "--members", "--group", group))
    assert {row["CLIENT-ID"] for row in crew} == {member.name for member in both}
    assert sorted(row["#PARTITIONS"] for row in crew) == ["0", "1"], "one stands for both"
    for member in both:
        member.close()
    reset = ("--reset-offsets", "--execute", "--group", group, "--topic", topic)
    (row,) = rows(tool(bootstrap, *reset, "--to-offset", "120"))
    assert row["NEW-OFFSET"] == "120"
    both = [members(variant, group, topic) for variant in ("aiokafka-range", "java-consumer")]
    for member in both:
        member.run()
    wait(lambda: everything(both).keys() == {str(n) for n in range(120, 200)}, "the last eighty")
    assert everything(both).total() == 80


@pytest.mark.differs("Kafka gives a partition to one member of a group")
@pytest.mark.long
@pytest.mark.parametrize("variant", ["confluent-range", "confluent-consumer"])
def test_the_lag_of_a_group_that_shares_adds_up(
    bootstrap: str, members: Members, topic: str, shared_groups: Callable[[], str], variant: str
) -> None:
    group = shared_groups()
    crowd = [members(variant, group, topic, max_poll_records=10) for _ in range(3)]
    for member in crowd:
        member.run()
    wait(lambda: all(topic in member.assigned for member in crowd), "all hold the subject")
    for member in crowd:
        member.do("pause", topic)
    fill(bootstrap, topic, 60)
    shown = rows(tool(bootstrap, "--describe", "--group", group))
    assert sum(int(row["LAG"]) for row in shown) == 60
    crew = rows(tool(bootstrap, "--describe", "--members", "--group", group))
    assert sorted(row["#PARTITIONS"] for row in crew) == ["0", "0", "1"]
