"""ShareFetch and ShareAcknowledge by hand: what is refused, and with which code, on either broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.groups.stories import configure, fill
from compat_tests.shares.raw import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    RawShareConsumer,
    acquired,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Join = Callable[[str], RawShareConsumer]

WAIT = 500


@pytest.fixture
def join(bootstrap: str, is_kafka: bool, topic: str, group: str) -> Iterator[Join]:
    """Gives members of a group that reads from the beginning."""
    configs = {"share.auto.offset.reset": "earliest"}
    if not is_kafka:
        configs["retry.backoff.ms"] = "0"
    configure(bootstrap, group, **configs)
    joined: list[RawShareConsumer] = []

    def member(name: str) -> RawShareConsumer:
        made = RawShareConsumer(bootstrap, group, topic, name)
        joined.append(made)
        made.join()
        return made

    yield member
    for made in joined:
        made.close()


class Holder:
    """A member with a share session that holds so many records from 0 on."""

    def __init__(self, member: RawShareConsumer, count: int) -> None:
        self.member = member
        self.epoch = 0
        self.counts: dict[int, int] = {}
        self.take(count)

    def take(self, count: int) -> None:
        while len(self.counts) < count:
            for first, last, delivery in acquired(self.member.fetch(self.next(), wait=WAIT)):
                self.counts |= dict.fromkeys(range(first, last + 1), delivery)

    def next(self) -> int:
        self.epoch += 1
        return self.epoch - 1

    def acked(self, *batches: tuple[int, int, list[int]], **more: Any) -> int:
        answer = self.member.acknowledge(self.next(), batches, **more)
        assert answer.error_code == 0, answer.error_message
        return int(answer.responses[0].partitions[0].error_code)

    def acked_in_a_fetch(self, *batches: tuple[int, int, list[int]]) -> int:
        answer = self.member.fetch(self.next(), batches)
        assert answer.error_code == 0, answer.error_message
        return int(answer.responses[0].partitions[0].acknowledge_error_code)


STATE, REQUEST = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
REFUSED: dict[str, tuple[list[tuple[int, int, list[int]]], ErrorCode]] = {
    "no range": ([(3, 2, [ACCEPT])], REQUEST),
    "descending": ([(3, 3, [ACCEPT]), (1, 1, [ACCEPT])], REQUEST),
    "overlapping": ([(0, 2, [ACCEPT]), (1, 3, [ACCEPT])], REQUEST),
    "no type": ([(0, 0, [])], REQUEST),
    "too many types": ([(0, 1, [ACCEPT] * 3)], REQUEST),
    "unknown type": ([(0, 0, [5])], REQUEST),
    "a renewal that is not announced": ([(0, 0, [RENEW])], REQUEST),
    "past what was given": ([(0, 100, [ACCEPT])], REQUEST),
    "only past it": ([(50, 50, [ACCEPT])], REQUEST),
}


@pytest.mark.parametrize(("batches", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_acknowledgement(
    bootstrap: str,
    topic: str,
    join: Join,
    batches: list[tuple[int, int, list[int]]],
    code: ErrorCode,
) -> None:
    fill(bootstrap, topic, 4)
    ann = Holder(join("ann"), 4)
    assert ann.acked(*batches) == code
    assert ann.acked_in_a_fetch(*batches) == code
    assert ann.acked((0, 3, [ACCEPT])) == 0


def test_each_type_of_acknowledgement_and_its_repetition(
    bootstrap: str, topic: str, join: Join
) -> None:
    fill(bootstrap, topic, 5)
    ann = Holder(join("ann"), 5)
    assert ann.acked((1, 4, [ACCEPT, RELEASE, REJECT, GAP])) == 0
    for offset in (1, 2, 3, 4):
        assert ann.acked((offset, offset, [ACCEPT])) == STATE
    ann.counts = {}
    ann.take(1)
    assert ann.counts == {2: 2}
    assert ann.acked((2, 2, [ACCEPT])) == 0
    assert ann.acked((0, 0, [RENEW]), renews=True) == 0
    assert ann.acked((0, 0, [ACCEPT])) == 0


def test_records_of_another_member(bootstrap: str, topic: str, join: Join) -> None:
    fill(bootstrap, topic, 2)
    ann = Holder(join("ann"), 2)
    ben = Holder(join("ben"), 0)
    assert acquired(ben.member.fetch(ben.next())) == []
    assert ben.acked((0, 1, [ACCEPT])) == STATE
    assert ann.acked((0, 1, [ACCEPT])) == 0


def test_epochs(bootstrap: str, topic: str, join: Join) -> None:
    fill(bootstrap, topic, 1)
    member = join("ann")
    assert member.fetch(1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.fetch(-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    gone = member.acknowledge(1, [(0, 0, [ACCEPT])])
    assert gone.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    ann = Holder(member, 1)
    for epoch in (ann.epoch - 1 or 77, ann.epoch + 1, 2147483647, -2):
        wrong = member.fetch(epoch)
        assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH, epoch
        wrong = member.acknowledge(epoch, [(0, 0, [ACCEPT])])
        assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH, epoch
    wrong = member.acknowledge(0, [(0, 0, [ACCEPT])])
    assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(0, [(0, 0, [ACCEPT])]).error_code == REQUEST
    assert ann.acked((0, 0, [ACCEPT])) == 0
    assert member.fetch(-1).error_code == 0
    assert member.fetch(-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_that_closes_gives_back(bootstrap: str, topic: str, join: Join) -> None:
    fill(bootstrap, topic, 3)
    ann = Holder(join("ann"), 3)
    closed = ann.member.acknowledge(-1, [(0, 0, [ACCEPT])])
    assert closed.responses[0].partitions[0].error_code == 0
    ann.epoch, ann.counts = 0, {}
    ann.take(2)
    assert ann.counts == {1: 2, 2: 2}
    closed = ann.member.fetch(-1, [(1, 1, [ACCEPT])])
    assert closed.responses[0].partitions[0].acknowledge_error_code == 0
    ann.epoch, ann.counts = 0, {}
    ann.take(1)
    assert ann.counts == {2: 3}


def test_a_lost_connection_gives_back(bootstrap: str, topic: str, join: Join) -> None:
    fill(bootstrap, topic, 1)
    ann = Holder(join("ann"), 1)
    ben = Holder(join("ben"), 0)
    assert acquired(ben.member.fetch(ben.next())) == []
    ann.member.close()
    ben.take(1)
    assert ben.counts == {0: 2}


def test_topics_and_partitions_that_do_not_exist(join: Join) -> None:
    member = join("ann")
    stranger = b"\1" * 16
    (found,) = member.fetch(0, partition=7).responses
    assert found.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (found,) = member.acknowledge(1, [(0, 0, [ACCEPT])], topic_id=stranger).responses
    assert found.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (found,) = member.acknowledge(2, [(0, 0, [ACCEPT])], partition=7).responses
    assert found.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.differs("Kafka 4.3.1 answers UNKNOWN_SERVER_ERROR, which tells a client nothing")
def test_a_fetch_from_a_topic_that_does_not_exist(join: Join, is_kafka: bool) -> None:
    member = join("ann")
    stranger = b"\1" * 16
    opening = member.fetch(0, topic_id=stranger)
    acking = member.fetch(1, [(0, 0, [ACCEPT])], topic_id=stranger)
    if is_kafka:
        assert opening.error_code == acking.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        return
    (found,) = opening.responses
    assert found.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (found,) = acking.responses
    assert found.partitions[0].acknowledge_error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_second_connection_of_one_member(bootstrap: str, topic: str, join: Join) -> None:
    first = join("ann")
    assert first.fetch(0).error_code == 0
    with RawShareConsumer(bootstrap, first.group, topic, "ann") as second:
        assert second.fetch(1).error_code == 0  # the epoch counts, not the connection
        assert second.fetch(0).error_code == 0
        assert first.fetch(2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        first.close()
        assert second.fetch(1).error_code == 0


def test_requests_that_name_nobody(join: Join) -> None:
    member = join("ann")
    for group, name in ((None, "ann"), (member.group, ""), (member.group, "x" * 37)):
        member.group, member.member, before = group, name, (member.group, member.member)  # type: ignore[assignment]
        assert member.fetch(0).error_code == REQUEST
        assert member.acknowledge(1, []).error_code == REQUEST
        member.group, member.member = before


def test_a_renewing_fetch(bootstrap: str, topic: str, join: Join) -> None:
    fill(bootstrap, topic, 1)
    ann = Holder(join("ann"), 1)
    zeros: dict[str, Any] = {"max_bytes": 0, "min_bytes": 0, "most": 0, "is_renew_ack": True}
    fetch = ann.member.fetch
    for name in ("max_bytes", "min_bytes", "most"):
        asked = fetch(ann.epoch, [(0, 0, [RENEW])], **(zeros | {name: 1}))
        assert asked.error_code == REQUEST, name
    answer = fetch(ann.next(), [(0, 0, [RENEW])], **zeros)
    assert answer.error_code == 0
    assert answer.acquisition_lock_timeout_ms == 30_000
    (found,) = answer.responses
    assert found.partitions[0].acknowledge_error_code == 0
    assert ann.acked((0, 0, [ACCEPT])) == 0
