"""All clients in one group of eight, with random joins, clean leaves, kill -9, freezes and drains.

Afterwards no message is missing, and none came twice but what a killed or frozen member had read.

    pytest compat_tests/test_groups_churn.py --churn-seconds 600 --churn-seed 7
"""

from __future__ import annotations

import pytest

from compat_tests.churn import Churn
from compat_tests.groups import configure, lag, offsets_name_one_message
from compat_tests.members.fixture import VARIANTS, Members
from compat_tests.support import eventually

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")


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
    seed = pytestconfig.getoption("--churn-seed")
    fewest = 1 if mode == "auto" else 2
    churn = Churn(members, group, topic, VARIANTS, seed=seed, fewest=fewest)
    churn.run(pytestconfig.getoption("--churn-seconds"))
    print(f"\n{mode}, seed {seed}: {churn.told()}")
    assert churn.missing() == []
    repeated = churn.repeated()
    assert not repeated, f"{len(repeated)} came twice: {dict(list(repeated.items())[:10])}"
    offsets_name_one_message(members.made)
    eventually(lambda: lag(bootstrap, group, topic) == 0, "all is committed")
