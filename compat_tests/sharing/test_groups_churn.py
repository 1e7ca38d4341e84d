"""All clients in one group of eight, with random joins, clean leaves, kill -9, freezes and drains.

Afterwards no message is missing, and none came twice but what a killed or frozen member had read.

    pytest compat_tests/sharing/test_groups_churn.py --churn-seconds 600 --churn-seed 7
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.groups.stories import configure, lag, offsets_name_one_message
from compat_tests.members.fixture import VARIANTS, Hosts, Members
from compat_tests.sharing.churn import Churn
from compat_tests.support import SESSION_MS, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.testing import TestBroker

pytestmark = [
    pytest.mark.long,
    pytest.mark.differs("Kafka gives a partition to one member of a group"),
    pytest.mark.kumquat(
        group_min_session_timeout_ms=1000,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=300,
    ),
]
TOPIC = "orders"
GROUP = "workers"


@pytest.fixture
def crew(kumquat: TestBroker, hosts: Hosts) -> Iterator[Members]:
    made = Members(kumquat.bootstrap, hosts)
    yield made
    made.close()


def check(churn: Churn, members: Members) -> None:
    print(f"\n{churn.told()}")
    assert churn.missing() == []
    repeated = churn.repeated()
    assert not repeated, f"{len(repeated)} came twice: {dict(list(repeated.items())[:10])}"
    offsets_name_one_message(members.made)
    eventually(lambda: lag(members.bootstrap, GROUP, TOPIC) == 0, "all is committed")


@pytest.mark.parametrize("mode", ["shared", "auto"])
def test_nothing_is_lost_and_nothing_comes_twice_without_a_reason(
    kumquat: TestBroker, crew: Members, pytestconfig: pytest.Config, mode: str
) -> None:
    """`auto` goes down to one member now and then, so that the group reads in order for a while."""
    configs = {"consume.mode": mode, "auto.exclusive.after.ms": "500"}
    configure(kumquat.bootstrap, GROUP, **configs)
    seed, fewest = pytestconfig.getoption("--churn-seed"), 1 if mode == "auto" else 2
    churn = Churn(crew, GROUP, TOPIC, VARIANTS, seed=seed, fewest=fewest)
    churn.run(pytestconfig.getoption("--churn-seconds"))
    check(churn, crew)


def test_nothing_is_lost_when_the_broker_is_killed_too(
    kumquat: TestBroker, crew: Members, pytestconfig: pytest.Config
) -> None:
    configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared"})
    seed = pytestconfig.getoption("--churn-seed")
    churn = Churn(crew, GROUP, TOPIC, VARIANTS, seed=seed, broker=kumquat)
    churn.run(pytestconfig.getoption("--churn-seconds"))
    check(churn, crew)
