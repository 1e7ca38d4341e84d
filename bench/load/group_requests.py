"""Group requests by hand, far cheaper than a client: joins, leaves and commits for benchmarks."""

from __future__ import annotations

import socket
import time
from typing import Any

from kafka.protocol.consumer.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.protocol.metadata import FindCoordinatorRequest

from bench.load import frames
from bench.load.requests import connect

JOIN_VERSION = 5
SYNC_VERSION = 3
LEAVE_VERSION = 1
COMMIT_VERSION = 8
FIND_VERSION = 2
MEMBER_ID_REQUIRED = 79
_NOT_YET = {14, 15, 16}
_SECONDS = 60
_WINDOW = 100


class Passer:
    """Joins a group, gets its assignment, and leaves."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        self._connection = connect(port)
        self._group, self._topic = group, topic
        self._member_id, self._generation = "", -1

    def join(self) -> None:
        for _ in range(2):
            answer = self._call(self._joining(), JoinGroupResponse[JOIN_VERSION])
            self._member_id = answer.member_id
            if answer.error_code != MEMBER_ID_REQUIRED:
                break
        _check(answer.error_code, "JoinGroup")
        self._generation = answer.generation_id
        request: Any = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            assignments=[],
            version=SYNC_VERSION,
        )
        _check(self._call(request, SyncGroupResponse[SYNC_VERSION]).error_code, "SyncGroup")

    def leave(self) -> None:
        request: Any = LeaveGroupRequest(
            group_id=self._group, member_id=self._member_id, version=LEAVE_VERSION
        )
        _check(self._call(request, LeaveGroupResponse[LEAVE_VERSION]).error_code, "LeaveGroup")
        self._connection.close()

    def _joining(self) -> Any:
        subscription = ConsumerProtocolSubscription(topics=[self._topic], user_data=b"", version=0)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[protocol(name="range", metadata=bytes(subscription.encode()))],
            version=JOIN_VERSION,
        )

    def _call(self, request: Any, response: Any) -> Any:
        request.with_header(correlation_id=0, client_id="passer")
        self._connection.sendall(request.encode(header=True, framed=True))
        return response.decode(frames.receive(self._connection), header=True)


def commit_frame(group: str, topic: str, offset: int) -> bytes:
    """A commit without a member, as admin tools and simple consumers send it."""
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = asked.OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    request: Any = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[asked(name=topic, partitions=[partition])],
        version=COMMIT_VERSION,
    )
    request.with_header(correlation_id=0, client_id="bench")
    return bytes(request.encode(header=True, framed=True))


def ready(port: int, topic: str) -> None:
    """Waits until commits are served: Kafka makes its topic for them at the first commit."""
    end = time.monotonic() + _SECONDS
    with connect(port) as connection:
        while True:
            request: Any = FindCoordinatorRequest(key="ready", key_type=0, version=FIND_VERSION)
            request.with_header(correlation_id=0, client_id="bench")
            connection.sendall(request.encode(header=True, framed=True))
            frames.receive(connection)
            connection.sendall(commit_frame("ready", topic, 0))
            code = _commit_code(connection)
            if code not in _NOT_YET:
                return _check(code, "OffsetCommit")
            if time.monotonic() > end:
                raise RuntimeError("commits are not served")
            time.sleep(0.1)


def commit_each(port: int, groups: list[str], topic: str) -> None:
    """One commit for each group, many of them in flight."""
    with connect(port) as connection:
        for begin in range(0, len(groups), _WINDOW):
            some = groups[begin : begin + _WINDOW]
            connection.sendall(b"".join(commit_frame(group, topic, 0) for group in some))
            for _ in some:
                _committed(connection)


def time_commits(port: int, group: str, topic: str, seconds: float) -> list[float]:
    """Commits one after the other, each of another offset; how long each took."""
    each = [commit_frame(group, topic, offset) for offset in range(64)]
    took = []
    with connect(port) as connection:
        now = time.perf_counter()
        end, turn = now + seconds, 0
        while now < end:
            connection.sendall(each[turn % len(each)])
            if turn % 1000 == 0:
                _committed(connection)
            else:
                frames.receive(connection)
            turn += 1
            then, now = now, time.perf_counter()
            took.append(now - then)
    return took


def _committed(connection: socket.socket) -> None:
    _check(_commit_code(connection), "OffsetCommit")


def _commit_code(connection: socket.socket) -> int:
    answer: Any = OffsetCommitResponse[COMMIT_VERSION].decode(
        frames.receive(connection), header=True
    )
    return int(answer.topics[0].partitions[0].error_code)


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} was answered with error code {code}")
