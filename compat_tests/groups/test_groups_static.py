"""Static members: a restart within the session changes nothing for the group."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.groups.stories import everything, fill, lag, settled
from compat_tests.members.fixture import Members
from compat_tests.members.remote import Failed, wait
from compat_tests.support import eventually

CLIENTS = [
    "kafka_python-range",
    "aiokafka-range",
    "confluent-range",
    "confluent-consumer",
    "java-range",
]
STATIC: dict[str, Any] = {"group_instance_id": "one", "session_timeout_ms": 120_000}


@pytest.mark.parametrize("variant", CLIENTS)
def test_a_static_member_that_comes_back_keeps_its_place(
    bootstrap: str, members: Members, topic: str, exclusive: str, variant: str
) -> None:
    sent = fill(bootstrap, topic, 20)
    first = members(variant, exclusive, topic, **STATIC)
    first.take(20)
    first.do("commit")
    other = members(variant, exclusive, topic, **{**STATIC, "group_instance_id": "two"})
    other.run()
    first.run()
    eventually(lambda: settled(bootstrap, exclusive, 2), "both are there")
    wait(lambda: (topic in first.assigned) != (topic in other.assigned), "one holds it")
    holder, idle = (first, other) if topic in first.assigned else (other, first)
    name, seen = "one" if holder is first else "two", len(idle.callbacks)
    holder.close()
    again = members(variant, exclusive, topic, **{**STATIC, "group_instance_id": name})
    again.run()
    sent += fill(bootstrap, topic, 20, first=20)
    again.wait(lambda: len(again.records) == 20, "the new ones")
    assert again.values() == sent[20:]
    assert not any(topics for _, topics in idle.callbacks[seen:]), "nobody else was troubled"


@pytest.mark.parametrize("variant", ["confluent-range", "java-range"])
def test_a_second_member_with_the_same_name_fences_the_first(
    bootstrap: str, members: Members, topic: str, exclusive: str, variant: str
) -> None:
    fill(bootstrap, topic, 20)
    first = members(variant, exclusive, topic, **STATIC)
    first.take(20)
    second = members(variant, exclusive, topic, **STATIC)
    second.take(20)
    with pytest.raises(Failed) as fenced:
        first.do("commit")
    # A librdkafka that has heard of it from a heartbeat before says no more than that the error is fatal.
    said = str(fenced.value).lower()
    assert "fenced" in said or "_fatal" in said


@pytest.mark.differs("Kafka gives a partition to one member of a group")
@pytest.mark.parametrize("variant", [each for each in CLIENTS if "consumer" not in each])
def test_a_static_member_that_shares_keeps_what_it_holds_until_it_is_back(
    bootstrap: str, members: Members, topic: str, shared: str, variant: str
) -> None:
    """When it is back, it and the others share what it had not committed. A KIP-848 member that was killed
    is let in again only after its session, as in Kafka."""
    fill(bootstrap, topic, 200)
    settings = {**STATIC, "max_poll_records": 10}
    first = members(variant, shared, topic, alone=True, **settings)
    done = {record.value for record in first.take(10)}
    first.do("commit")
    held = {record.value for record in first.take(10)}
    first.kill()
    other = members("aiokafka-range", shared, topic)
    other.run()
    other.wait_assigned(topic)
    fill(bootstrap, topic, 100, first=200, batch=10)
    other.wait(lambda: any(int(value) >= 200 for value in other.values()), "new ones")
    assert not held & set(other.values())
    again = members(variant, shared, topic, **settings)
    again.run()
    both = [again, other]
    wait(lambda: len(everything(both)) == 290, "all but what was committed")
    assert everything(both).keys() == {str(n) for n in range(300)} - done
    assert everything(both).total() == 290
    eventually(lambda: lag(bootstrap, shared, topic) == 0, "all is committed")
