"""A share consumer by hand, for what no client can be made to send: any epoch, any acknowledgement.

Requests and answers are the broker's own message classes, which the tests of gateway/wire compare with
Kafka's schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

from compat_tests.support import eventually
from compat_tests.wire.connection import Wire, describe_topic
from kumquat.gateway.wire import (
    RESPONSES,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FindCoordinatorRequest,
    ShareAcknowledgeRequest,
    ShareFetchAcknowledgement,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareGroupHeartbeatRequest,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Acks: TypeAlias = Sequence[tuple[int, int, list[int]]]
CLIENT = b"raw"
COORDINATOR_TO_COME = (14, 15, 16)
"""Kafka makes its topic for groups when somebody looks for a coordinator."""


class RawShareConsumer:
    def __init__(self, bootstrap: str, group: str, topic: str, member: str) -> None:
        self._wire = Wire(bootstrap)
        self.group = group
        self.member = member
        self.topic = topic
        self.topic_id = describe_topic(self._wire, topic).topic_id.bytes
        self._count = 1000

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._wire.socket.close()

    def call(self, request: Any, version: int) -> Any:
        self._count += 1
        head = struct.pack(">hhih", request.api_key, version, self._count, len(CLIENT))
        body = head + CLIENT + b"\0" + b"".join(type(request).encode(request, version))
        self._wire.socket.sendall(struct.pack(">i", len(body)) + body)
        frame = self._wire.read_frame()
        assert frame[:5] == struct.pack(">ib", self._count, 0)
        answer, end = RESPONSES[request.api_key].decode(frame, version, 5)
        assert end == len(frame)
        return answer

    def join(self) -> None:
        """Until the topic is assigned."""
        epoch = 0

        def assigned() -> bool:
            nonlocal epoch
            topics = [self.topic] if epoch == 0 else None
            request = ShareGroupHeartbeatRequest(
                self.group, self.member, epoch, subscribed_topic_names=topics
            )
            answer = self.call(request, 1)
            if answer.error_code in COORDINATOR_TO_COME:
                self.call(FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
                return False
            assert answer.error_code == 0, answer.error_message
            epoch = answer.member_epoch
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        eventually(assigned, f"{self.member} is assigned {self.topic}")

    def fetch(
        self,
        epoch: int,
        acks: Acks = (),
        *,
        wait: int = 0,
        most: int = 500,
        partition: int = 0,
        topic_id: bytes | None = None,
        version: int = 2,
        **more: Any,
    ) -> Any:
        batches = [ShareFetchAcknowledgement(*batch) for batch in acks]
        named = [
            ShareFetchTopic(topic_id or self.topic_id, [ShareFetchPartition(partition, batches)])
        ]
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=epoch,
            max_wait_ms=wait,
            min_bytes=more.pop("min_bytes", 1),
            max_records=most,
            batch_size=most,
            topics=named if epoch == 0 or batches else [],
            **more,
        )
        return self.call(request, version)

    def acknowledge(
        self,
        epoch: int,
        acks: Acks,
        *,
        partition: int = 0,
        topic_id: bytes | None = None,
        renews: bool = False,
        version: int = 2,
    ) -> Any:
        batches = [AcknowledgementBatch(*batch) for batch in acks]
        topics = [
            AcknowledgeTopic(topic_id or self.topic_id, [AcknowledgePartition(partition, batches)])
        ]
        request = ShareAcknowledgeRequest(self.group, self.member, epoch, renews, topics)
        return self.call(request, version)


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """First and last offset and delivery count of all that an answer without errors gives."""
    assert answer.error_code == 0, (answer.error_code, answer.error_message)
    found = []
    for topic in answer.responses:
        for data in topic.partitions:
            assert data.error_code == 0, data
            found += [
                (one.first_offset, one.last_offset, one.delivery_count)
                for one in data.acquired_records
            ]
    return found
