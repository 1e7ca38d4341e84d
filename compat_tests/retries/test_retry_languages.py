"""Go and Node: "this one failed" with plain headers of their own producers; franz-go in a share group."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.groups.stories import configure, everything, fill
from compat_tests.members.fixture import FRANZ, KAFKA_GO, KAFKA_JS, SARAMA, Members
from compat_tests.members.remote import wait
from compat_tests.retries.stories import crew, dead_letters, given, idle
from compat_tests.support import eventually, mostly_long

if TYPE_CHECKING:
    from compat_tests.members.remote import Member
    from kumquat.testing import TestBroker

__all__ = ["crew"]

pytestmark = [
    pytest.mark.differs(
        "Kafka has no retries for consumer groups, and no back-off for share groups"
    ),
    pytest.mark.kumquat(group_min_session_timeout_ms=1000),
]
TOPIC, GROUP = "orders", "workers"
LETTERS = f"{TOPIC}.{GROUP}.dlq"
COUNT = 100
AGAIN, NEVER = "7", "33"
AFTER_MS = 1200


def check(broker: TestBroker, crowd: list[Member], attempts: list[int], wait_ms: int) -> None:
    wait(lambda: len(given(crowd, AGAIN)) >= 2, "the retried one comes again")
    wait(lambda: len(everything(crowd)) >= COUNT, "all of them")
    eventually(partial(idle, broker, GROUP, TOPIC), "all is acked")
    assert not any(member.broken for member in crowd), crowd
    first, second = given(crowd, AGAIN)
    assert [first.attempt, second.attempt] == attempts
    assert second.at >= first.at + wait_ms
    once = everything(crowd)
    assert once.pop(AGAIN) == 2
    assert once.total() == len(once) == COUNT - 1, "another one came twice, or not at all"
    (letter,) = dead_letters(broker.bootstrap, LETTERS)
    assert letter.value == NEVER
    assert letter.headers["qmq-dead-reason"] == "rejected"


EACH = [SARAMA[0], KAFKA_GO[0], FRANZ[0], KAFKA_JS[0]]


@pytest.mark.parametrize("count", mostly_long([1, 2], short=[1]))
@pytest.mark.parametrize("variant", EACH)
def test_a_message_is_retried_and_one_rejected_with_plain_headers(
    kumquat: TestBroker, crew: Members, variant: str, count: int
) -> None:
    if count > 1:
        configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared"})
    failing: dict[str, Any] = {"retry_at": AGAIN, "reject_at": NEVER, "retry_after_ms": AFTER_MS}
    crowd = [crew(variant, GROUP, TOPIC, **failing) for _ in range(count)]
    fill(kumquat.bootstrap, TOPIC, COUNT)
    for member in crowd:
        member.run()
    check(kumquat, crowd, [1, 2], AFTER_MS)
    (letter,) = dead_letters(kumquat.bootstrap, LETTERS)
    assert letter.headers["qmq-dead-text"] == "it failed"


def test_franz_go_shares_releases_and_rejects_in_a_share_group(
    kumquat: TestBroker, crew: Members
) -> None:
    configs = {"share.auto.offset.reset": "earliest", "retry.backoff.ms": str(AFTER_MS)}
    configure(kumquat.bootstrap, GROUP, **configs)
    fill(kumquat.bootstrap, TOPIC, COUNT)
    crowd = [crew("franz-share", GROUP, TOPIC, retry_at=AGAIN, reject_at=NEVER) for _ in range(2)]
    for member in crowd:
        member.run()
    check(kumquat, crowd, [1, 2], AFTER_MS)
    for member in crowd:
        member.close()
    assert not any(member.broken for member in crowd), crowd
