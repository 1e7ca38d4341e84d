"""Kafka's own kafka-share-groups, as it is: lists, describes, resets and deletes.

A JVM for each command: few, and each looks at much.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from compat_tests.groups.stories import fill
from compat_tests.groups.test_groups_tools import rows
from compat_tests.groups.test_groups_tools import tool as run
from compat_tests.shares.stories import from_the_first, member, succeeds, take, values
from compat_tests.support import T0

TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


def tool(bootstrap: str, *arguments: str) -> str:
    return run(bootstrap, *arguments, name=TOOL)


def test_a_group_at_work_is_listed_and_described(
    bootstrap: str, topic: str, group: str, is_kafka: bool
) -> None:
    from_the_first(bootstrap, group, is_kafka)
    fill(bootstrap, topic, 40)
    with member(bootstrap, group, topic, client_id="worker-7") as reader:
        take(reader, 40)
        succeeds(reader)
        assert group in tool(bootstrap, "--list").split()
        describe = ("--describe", "--group", group)
        (row,) = rows(tool(bootstrap, *describe))
        assert (row["GROUP"], row["TOPIC"], row["PARTITION"]) == (group, topic, "0")
        assert row["LAG"] == "0"
        (row,) = rows(tool(bootstrap, *describe, "--members"))
        assert (row["GROUP"], row["CLIENT-ID"]) == (group, "worker-7")
        assert row["ASSIGNMENT"] == f"{topic}:0"
        state = tool(bootstrap, *describe, "--state").split()
        assert state[-3:] == ["(1)", "Stable", "1"], state


@pytest.mark.long
def test_an_empty_group_is_reset_and_deleted(
    bootstrap: str, topic: str, group: str, is_kafka: bool
) -> None:
    from_the_first(bootstrap, group, is_kafka)
    fill(bootstrap, topic, 40)
    with member(bootstrap, group, topic) as reader:
        take(reader, 40)
        succeeds(reader)
    assert "Empty" in tool(bootstrap, "--list", "--state", "Empty")
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    at = datetime.fromtimestamp((T0 + 200) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    (row,) = rows(tool(bootstrap, *reset, "--dry-run", "--to-earliest"))
    assert row["NEW-OFFSET"] == "0"
    (row,) = rows(tool(bootstrap, *reset, "--execute", "--to-datetime", at))
    assert row["NEW-OFFSET"] == "20"
    (row,) = rows(tool(bootstrap, "--describe", "--group", group))
    assert (row["START-OFFSET"], row["LAG"]) == ("20", "20")
    with member(bootstrap, group, topic) as reader:
        assert values(take(reader, 20)) == [str(number) for number in range(20, 40)]
        succeeds(reader)
    (row,) = rows(tool(bootstrap, *reset, "--execute", "--to-earliest"))
    assert row["NEW-OFFSET"] == "0"
    said = tool(bootstrap, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in said, said
    assert "successful" in tool(bootstrap, "--delete", "--group", group)
    assert group not in tool(bootstrap, "--list").split()
