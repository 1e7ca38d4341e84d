"""kill -9 of the broker under share consumers: they go on without rejoining, what was acknowledged never
comes back, and what was not comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from compat_tests.groups.stories import configure, fill
from compat_tests.shares.raw import RawShareConsumer
from compat_tests.support import eventually
from kumquat.gateway.wire import ShareGroupDescribeRequest

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

pytestmark = pytest.mark.differs("Kafka is not killed here")
TOPIC, GROUP = "orders", "workers"
CRASHES = 3
CONFIGS = {"group.id": GROUP, "share.acknowledgement.mode": "explicit", "log_level": 2}


def epochs(bootstrap: str) -> dict[str, int]:
    """Member → its epoch: one that had rejoined would have a higher one."""
    with RawShareConsumer(bootstrap, GROUP, TOPIC, "looker") as looker:
        (group,) = looker.call(ShareGroupDescribeRequest([GROUP]), 1).groups
    return {member.member_id: member.member_epoch for member in group.members}


@pytest.mark.long
def test_share_consumers_go_on_without_rejoining(kumquat: TestBroker) -> None:
    configure(
        kumquat.bootstrap,
        GROUP,
        **{"share.auto.offset.reset": "earliest", "retry.backoff.ms": "0"},
    )
    written = {int(value) for value in fill(kumquat.bootstrap, TOPIC, 300)}
    members = [ShareConsumer({"bootstrap.servers": kumquat.bootstrap, **CONFIGS}) for _ in range(3)]
    acknowledged: set[int] = set()
    given: set[int] = set()

    def work(most: int) -> bool:
        """Each takes some, accepts so many and releases the rest; whether all is accepted."""
        for member in members:
            found = [message for message in member.poll(0.2) if not message.error()]
            for place, message in enumerate(found):
                number = int(message.value() or b"")
                assert number not in acknowledged, f"{number} came again"
                given.add(number)
                kind = AcknowledgeType.ACCEPT if place < most else AcknowledgeType.RELEASE
                member.acknowledge(message, kind)
            results: dict[Any, Any] = member.commit_sync(5.0)
            if not any(results.values()):
                acknowledged.update(int(message.value() or b"") for message in found[:most])
        return acknowledged == written

    for member in members:
        member.subscribe([TOPIC])
    eventually(lambda: work(5) or len(epochs(kumquat.bootstrap)) == 3, "all are members")
    before = epochs(kumquat.bootstrap)
    for _ in range(CRASHES):
        kumquat.kill()
        kumquat.start()
        first = len(written)
        written |= {int(v) for v in fill(kumquat.bootstrap, TOPIC, 300, first=first)}
        eventually(lambda: work(1000), "all of them")
    assert epochs(kumquat.bootstrap) == before
    assert given == written
    for member in members:
        member.close()
