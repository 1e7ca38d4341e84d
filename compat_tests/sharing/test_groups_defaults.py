"""Clients and broker at their default settings: sessions of 45 s, heartbeats of 3 s, commits of 5 s.

All other stories hurry; what is told here takes as long as it takes a user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.groups.stories import PULL, everything, fill, lag
from compat_tests.members.fixture import VARIANTS, Hosts, Members
from compat_tests.members.remote import Member, wait
from compat_tests.support import DEADLINE, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.testing import TestBroker

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")
TOPIC = "orders"
MOVE_SECONDS = 2 * DEADLINE
SESSION_SECONDS = 45


@pytest.fixture
def crew(kumquat: TestBroker, hosts: Hosts) -> Iterator[Members]:
    made = Members(kumquat.bootstrap, hosts)
    yield made
    made.close()


def default_member(crew: Members, variant: str, *, alone: bool = False) -> Member:
    settings = {"auto_offset_reset": "earliest"}
    member = crew(variant, f"by-{variant}", TOPIC, alone=alone, quick=False, **settings)
    member.run(commit="never")
    return member


def test_every_client_moves_to_sharing_and_loses_nothing(
    kumquat: TestBroker, crew: Members
) -> None:
    """A group for each variant; all move at the same time."""
    written = len(fill(kumquat.bootstrap, TOPIC, 100))
    pairs = [[default_member(crew, variant)] for variant in VARIANTS]
    wait(lambda: all(len(pair[0].records) == 100 for pair in pairs), "all read it", MOVE_SECONDS)
    for pair in pairs:
        pair.append(default_member(crew, pair[0].variant))

    def all_share() -> bool:
        nonlocal written
        written += len(fill(kumquat.bootstrap, TOPIC, 20, first=written))
        return all(any(r.offset >= PULL for r in m.records) for pair in pairs for m in pair)

    eventually(all_share, "all share", MOVE_SECONDS)
    wait(
        lambda: all(len(everything(pair)) == written for pair in pairs), "all read it", MOVE_SECONDS
    )
    for pair in pairs:
        for member in pair:
            member.close()
        assert lag(kumquat.bootstrap, f"by-{pair[0].variant}", TOPIC) == 0, pair


@pytest.mark.long
@pytest.mark.parametrize("variant", ["confluent-range", "java-consumer"])
def test_what_a_killed_member_held_comes_back_after_its_session(
    kumquat: TestBroker, crew: Members, variant: str
) -> None:
    fill(kumquat.bootstrap, TOPIC, 100)
    victim = default_member(crew, variant, alone=True)
    victim.wait(lambda: len(victim.records) == 100, "all of them")
    victim.kill()
    heir = default_member(crew, variant)
    heir.wait(lambda: len(heir.records) == 100, "all of them again", SESSION_SECONDS + DEADLINE)
