"""Fetch: whole batches from an offset on, waiting for some when there are none. Key 1, versions 4 to 17.

What each version added:
  v4  isolation level, last stable offset (always the high watermark: there are no transactions)
  v5  log start offset
  v7  fetch sessions: never made, the answer always says session 0, and clients keep sending full requests.
      A request within a session is answered FETCH_SESSION_ID_NOT_FOUND, and the client starts over
  v8, v10  nothing a client sees here (v10: zstd; batches are given as they are in any version)
  v9  the leader epoch that the client knows: see leader_epoch.py
  v11 rack (ignored: there is one replica)
  v12 flexible; last fetched epoch (ignored: nothing is ever truncated)
  v13 topics by id
  v14 to v17  for replicas, or nothing a client sees here

An answer lists exactly the partitions that were asked for. It is given at once when `min_bytes` are
there, when a partition has an error, or when nothing could ever come; else when data has come, at the
latest after `max_wait_ms` (and never more than `connections.max.idle.ms`), or when the client has gone.
The first batch is given even when it is larger than all limits (KIP-74). What was read before a wait is
kept, and the next pass reads on after it. Otherwise a wait for many bytes would read the first of them
again each time.

Room for the answer is taken before it is read (net/limits.py). If there is little, the answer is smaller;
if there is none even for the first batch, the Fetch waits for it.

An offset with a slot in its high bits is a pull offset, of a sharing member: see
sharing/service.py. What it is handed is answered at once, without regard to `min_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from kumquat.core.delivery.pull_log import SLOT_SHIFT
from kumquat.core.errors import KumquatError
from kumquat.core.records.batch import read_head
from kumquat.gateway.handlers.common import leader_epoch
from kumquat.gateway.handlers.common.lookup import find_partition
from kumquat.gateway.handlers.common.reading import read_batches
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.net.limits import ONE_BATCH
from kumquat.gateway.wire import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.delivery.sharing.hand_outs import Waiter
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.wire import AbortedTransaction, FetchPartition, FetchTopic

PARTITIONS_AT_A_TIME = 200
STARVED_SECONDS = 10.0


def _refuse(request: FetchRequest, code: int, message: str) -> FetchResponse:
    if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
        return FetchResponse(error_code=code)
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                [_failed(partition.partition, code) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _failed(index: int, code: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


@handles(request=FetchRequest, response=FetchResponse, versions=range(4, 18), refuse=_refuse)
async def fetch(session: Session, request: FetchRequest) -> FetchResponse:
    if request.session_epoch > 0:
        raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "there are no fetch sessions")
    broker = session.broker
    max_wait = request.max_wait_ms / 1000
    if broker.config.connections_max_idle_ms >= 0:
        max_wait = min(max_wait, broker.config.connections_max_idle_ms / 1000)
    session.fetched_at = trio.current_time()
    deadline = session.fetched_at + max_wait
    read: dict[int, _Read] = {}
    account = session.account
    wanted = min(request.max_bytes, broker.config.fetch_max_bytes)
    while True:
        answer = _Answer(session, request, read, wanted, account.grant(max(wanted, ONE_BATCH)))
        await answer.read()
        account.made(answer.size)
        if answer.starved and await _find_room(session):
            continue
        if answer.size >= request.min_bytes or answer.complete:
            break
        if trio.current_time() >= deadline or session.ending:
            break
        if not answer.overtaken():
            with session.long_poll():
                await broker.sharing.wait(
                    list(answer.awaited),
                    answer.waiters,
                    deadline,
                    broker.coordinator.request_rebalance,
                )
    broker.traffic.fetched_bytes += answer.size
    return FetchResponse(responses=answer.topics)


async def _find_room(session: Session) -> bool:
    """Wait for room for one batch; False: there is none, and the answer is empty."""
    with session.long_poll(), trio.move_on_after(STARVED_SECONDS):
        await session.account.wait_for_batch()
        await trio.lowlevel.checkpoint()
        return True
    return False


@dataclass(slots=True)
class _Read:
    """What passes before have read of a partition."""

    subject: Subject
    batches: list[bytes | memoryview]
    size: int

    @property
    def following(self) -> int:
        """The offset after it."""
        head = read_head(self.batches[-1])
        return head.base_offset + head.last_offset_delta + 1


class _Answer:
    """One pass over all that a Fetch asks for."""

    def __init__(
        self,
        session: Session,
        request: FetchRequest,
        read: dict[int, _Read],
        wanted: int,
        granted: int,
    ) -> None:
        self._session = session
        self._broker = session.broker
        self._request = request
        self._read = read
        """By the place of the partition in the request."""
        self._room = min(wanted, granted)
        self._cramped = granted < ONE_BATCH
        """There is not even room for one batch of the largest usual size."""
        self._starved = False
        self._short = granted < wanted
        """It is granted less than it asks for."""
        self._aborted: list[AbortedTransaction] | None = [] if request.isolation_level else None
        self.topics: list[FetchableTopicResponse] = []
        self.size = sum(before.size for before in read.values())
        self._failed = self._fenced = self._handed_out = self._cut_short = False
        self.awaited: dict[Subject, int] = {}
        """Subjects whose growth would change the answer, with the high watermark that was seen."""
        self.waiters: list[Waiter] = []
        """Pull logs in which there was nothing."""

    @property
    def complete(self) -> bool:
        """Whether there is no reason to wait, or nothing to wait for."""
        if self._failed or self._handed_out or self._cut_short:
            return True
        return not self.awaited and not self.waiters and not self._fenced

    @property
    def starved(self) -> bool:
        """Whether there was something to read, and no room for any of it."""
        return self._starved and not self.size

    def overtaken(self) -> bool:
        """Whether something has come while others were being read."""
        return any(
            subject.readable_end != seen or subject.deleted
            for subject, seen in self.awaited.items()
        )

    async def read(self) -> None:
        count = 0
        for topic in self._request.topics:
            partitions = []
            for partition in topic.partitions:
                partitions.append(await self._read_partition(topic, partition, count))
                count += 1
                if count % PARTITIONS_AT_A_TIME == 0:
                    await trio.lowlevel.checkpoint()
            self.topics.append(FetchableTopicResponse(topic.topic, topic.topic_id, partitions))

    async def _read_partition(
        self, topic: FetchTopic, partition: FetchPartition, number: int
    ) -> PartitionData:
        index = partition.partition
        try:
            subject = find_partition(self._broker, topic.topic, index, topic.topic_id)
            if partition.fetch_offset >> SLOT_SHIFT > 0:
                return await self._read_shared(subject, partition)
            leader_epoch.check(partition.current_leader_epoch)
            self.awaited[subject] = subject.readable_end
            records = await self._records(subject, partition, number)
        except ANSWERABLE as error:
            self._failed = True
            self._broker.traffic.fetch_failures += 1
            return _failed(index, error.error_code)
        return PartitionData(
            partition_index=0,
            high_watermark=subject.readable_end,
            last_stable_offset=subject.readable_end,
            log_start_offset=subject.earliest,
            aborted_transactions=self._aborted,
            records=records,
        )

    async def _read_shared(self, subject: Subject, partition: FetchPartition) -> PartitionData:
        limit = min(partition.partition_max_bytes, self._room - self.size)
        sharing, offset = self._broker.sharing, partition.fetch_offset
        sharing.note_reader(subject, offset, self._session)
        shared = await sharing.read(subject, offset, limit, self.size == 0)
        self.size += shared.size
        if shared.size:
            self._handed_out = True
        elif shared.waiter is not None:
            self.waiters.append(shared.waiter)
        else:
            self._fenced = True
        return PartitionData(
            partition_index=0,
            high_watermark=shared.readable_end,
            last_stable_offset=shared.readable_end,
            log_start_offset=shared.log_start,
            aborted_transactions=self._aborted,
            records=shared.records or b"",
        )

    async def _records(
        self, subject: Subject, partition: FetchPartition, number: int
    ) -> list[bytes | memoryview] | bytes:
        before = self._read.get(number)
        if before is None or before.subject is not subject:
            self.size -= before.size if before else 0  # that was of a topic which is deleted now
            before = self._read[number] = _Read(subject, [], 0)
            self._session.note_read(subject.id, partition.fetch_offset)
        offset = before.following if before.batches else partition.fetch_offset
        # A producer may know an offset before its batch is synced and can be read.
        if subject.readable_end <= offset <= subject.next_sequence:
            return before.batches or b""
        limit = min(partition.partition_max_bytes - before.size, self._room - self.size)
        if self.size and limit <= 0:
            return before.batches or b""
        try:
            first = not self.size and not self._cramped
            more = await read_batches(self._broker.log, subject, offset, limit, first)
        except KumquatError:
            if not before.batches:
                raise
            self._failed = True  # the next Fetch gets the error; this one ends with what there is
            return before.batches
        if more:
            size = sum(map(len, more))
            self.size += size
            before = _Read(subject, before.batches + more, before.size + size)
            self._read[number] = before
            if self._short and before.following < subject.readable_end:
                # More is there, and the client can have it with its next Fetch.
                self._cut_short = True
        elif self._cramped:
            self._starved = True
        return before.batches or b""
