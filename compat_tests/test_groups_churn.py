"""All clients in one group of eight, with random joins, clean leaves, kill -9, freezes and drains.

Afterwards no message is missing, and none came twice but what a killed or frozen member had read.

    pytest compat_tests/test_groups_churn.py --churn-seconds 600 --churn-seed 7
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.churn import Churn
from compat_tests.groups import configure, lag, offsets_name_one_message
from compat_tests.members.fixture import VARIANTS, Hosts, Members
from compat_tests.support import eventually

if TYPE_CHECKING:
    from gateway.testing import TestBroker

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")


def check(churn: Churn, members: Members, group: str, topic: str) -> None:
    print(f"\n{churn.told()}")
    assert churn.missing() == []
    repeated = churn.repeated()
    assert not repeated, f"{len(repeated)} came twice: {dict(list(repeated.items())[:10])}"
    offsets_name_one_message(members.made)
    eventually(lambda: lag(members.bootstrap, group, topic) == 0, "all is committed")


@pytest.mark.parametrize("mode", ["shared", "auto"])
def test_nothing_is_lost_and_nothing_comes_twice_without_a_reason(
    bootstrap: str,
    members: Members,
    topic: str,
    group: str,
    pytestconfig: pytest.Config,
    mode: str,
) -> None:
    """`auto` goes down to one member now and then, so that the group reads in order for a while."""
    configure(bootstrap, group, **{"consume.mode": mode, "auto.exclusive.after.ms": "500"})
    seed, fewest = pytestconfig.getoption("--churn-seed"), 1 if mode == "auto" else 2
    churn = Churn(members, group, topic, VARIANTS, seed=seed, fewest=fewest)
    churn.run(pytestconfig.getoption("--churn-seconds"))
    check(churn, members, group, topic)


@pytest.mark.kumquat(
    group_min_session_timeout_ms=1000,
    group_consumer_session_timeout_ms=4000,
    group_consumer_heartbeat_interval_ms=300,
)
def test_nothing_is_lost_when_the_broker_is_killed_too(
    kumquat: TestBroker, hosts: Hosts, pytestconfig: pytest.Config
) -> None:
    members = Members(kumquat.bootstrap, hosts)
    try:
        configure(kumquat.bootstrap, "workers", **{"consume.mode": "shared"})
        seed = pytestconfig.getoption("--churn-seed")
        churn = Churn(members, "workers", "orders", VARIANTS, seed=seed, broker=kumquat)
        churn.run(pytestconfig.getoption("--churn-seconds"))
        check(churn, members, "workers", "orders")
    finally:
        members.close()
