"""The internal group, which knows the letters that are open: no request changes it, or shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.delivery.dead_letters.names import OWN
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP, Filter
from kumquat.core.delivery.state import SHARE
from kumquat.gateway.admin.http import HttpError
from kumquat.gateway.admin.routes import answer as ask_admin
from kumquat.gateway.admin.tests.dead import Sent, die
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.topics.table import INTERNAL
from kumquat.gateway.wire import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    SyncGroupRequest,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

G, T = INTERNAL_GROUP, "t.g.dlq"
INVALID, NOT_FOUND = ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND
COMMIT = OffsetCommitRequestTopic(T, [OffsetCommitRequestPartition(0, 0, committed_metadata="")])
PROTOCOL = JoinGroupRequestProtocol("range", b"")
JOIN = JoinGroupRequest(G, 10_000, 10_000, "", protocol_type="consumer", protocols=[PROTOCOL])
JOIN_848 = ConsumerGroupHeartbeatRequest(
    G, "m" * 22, 0, rebalance_timeout_ms=1000, subscribed_topic_names=[T], topic_partitions=[]
)
ALTERED = AlterShareGroupOffsetsRequestTopic(T, [AlterShareGroupOffsetsRequestPartition(0, 0)])
DELETED = OffsetDeleteRequestTopic(T, [OffsetDeleteRequestPartition(0)])


def code(answer: Any) -> int:
    return int(answer.error_code)


def of_topic(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


def of_group(answer: Any) -> int:
    return int(answer.groups[0].error_code)


REQUESTS: list[tuple[Any, int, Any, int]] = [
    (JOIN, 5, code, INVALID),
    (SyncGroupRequest(G, 1, "m"), 3, code, INVALID),
    (HeartbeatRequest(G, 1, "m"), 3, code, INVALID),
    (LeaveGroupRequest(G, "m"), 1, code, INVALID),
    (JOIN_848, 1, code, INVALID),
    (ShareGroupHeartbeatRequest(G, "m", 0, subscribed_topic_names=[T]), 1, code, INVALID),
    (OffsetCommitRequest(G, -1, "", topics=[COMMIT]), 7, of_topic, INVALID),
    (OffsetFetchRequest(G, [OffsetFetchRequestTopic(T, [0])]), 5, code, INVALID),
    (OffsetDeleteRequest(G, [DELETED]), 0, code, INVALID),
    (DeleteGroupsRequest([G]), 2, lambda a: a.results[0].error_code, NOT_FOUND),
    (AlterShareGroupOffsetsRequest(G, [ALTERED]), 0, code, INVALID),
    (
        DeleteShareGroupOffsetsRequest(G, [DeleteShareGroupOffsetsRequestTopic(T)]),
        0,
        code,
        INVALID,
    ),
    (ShareFetchRequest(G, "m", 0), 1, code, INVALID),
    (ShareAcknowledgeRequest(G, "m", 1), 1, code, INVALID),
    (DescribeGroupsRequest([G]), 6, of_group, NOT_FOUND),
    (ConsumerGroupDescribeRequest([G]), 0, of_group, NOT_FOUND),
    (ShareGroupDescribeRequest([G]), 1, of_group, NOT_FOUND),
]


def test_no_request_changes_the_internal_group(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await die(served, "t", "g", [Sent(b"a"), Sent(b"b")])
        redrives, groups = served.broker.dead_letters.redrives, served.broker.actions.groups
        assert (await redrives.redrive(T, Filter(), most=1)).done == 1
        before = groups.snapshot(groups.by_name[G])
        found = []
        async with served.client() as client:
            for request, version, of, _ in REQUESTS:
                answer = await client.call(request, version)
                found.append((type(request).__name__, of(answer)))
        assert found == [(type(request).__name__, wanted) for request, _, _, wanted in REQUESTS]
        for path, more in (("reset", {"to": "earliest"}), ("skip", {"to": 1})):
            values = {"group": G, "subject": T, **more}
            with pytest.raises(HttpError, match="there is no group"):
                await ask_admin(served.broker, "POST", f"/groups/{path}", values)
        assert groups.snapshot(groups.by_name[G]) == before
        assert groups.by_name[G].last_kind != SHARE
        assert [subject.open for subject in redrives.subjects()] == [1]

    serve(check, tmp_path)


def test_letters_know_all_internal_topics() -> None:
    assert OWN == INTERNAL
