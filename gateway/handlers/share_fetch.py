"""ShareFetch: records for one member of a share group, which are then its own for a while. Key 78,
versions 1 and 2.

What each version added:
  v1  the first that is served
  v2  the acquire mode (0 batch-optimized: may exceed `max_records` to finish a batch; 1 record-limit).
      With 0, who reads alone is given the rest of the last batch, as in Kafka; among several nobody is
      given more than `max_records`. And renewals (`is_renew_ack`): such a request reads nothing

The request belongs to the member's share session, which remembers the partitions: see shares/sessions.py.
In this order: what it acknowledges is applied; with epoch -1 the session is closed, and all that the member
holds is given back; otherwise it is given records. The answer leaves when the acknowledgements are durable.

It is given what there is at once, without regard to `min_bytes`: what waits in the broker is locked all the
same. When there is nothing, the request waits up to `max_wait_ms` (and never more than
`connections.max.idle.ms`), as a Fetch does; not where each partition has an error. Each time the partitions
are looked at from another one on, so that a busy one does not starve the others. Limits count over all.

A topic or partition that does not exist is said once, and no longer read: its id never comes back. So a
session holds no more than there is, whatever its client names, and an answer is as small as its request.

The answer has every partition that acknowledged something, has an error or has records; the answer that
opens a session has them all. `records` holds zero bytes, never null, where there are none. A member that
the group does not know is refused nothing, as in Kafka: it holds nothing and is given nothing.

Beyond the limit of share sessions the refusal comes after `max_wait_ms`: a client repeats it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kumquat.core.delivery.sharing.shares import Acquired
from kumquat.gateway.handlers.common.lookup import find_partition
from kumquat.gateway.handlers.common.share_requests import Acknowledging, by_topic, member_of
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.net.limits import ONE_BATCH
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.shares.acknowledgements import check_renewing_fetch
from kumquat.gateway.shares.errors import ShareSessionLimitReached, ShareSessionNotFound
from kumquat.gateway.shares.sessions import CLOSES, OPENS, Partition
from kumquat.gateway.wire import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.delivery.sharing.hand_outs import Waiter
    from kumquat.gateway.net.dispatch import Answerable, Session
    from kumquat.gateway.shares.sessions import Member, ShareSession


NOTHING = Acquired([], 0, [])
BATCH_OPTIMIZED = 0


@handles(request=ShareFetchRequest, response=ShareFetchResponse, versions=range(1, 3))
async def share_fetch(session: Session, request: ShareFetchRequest) -> ShareFetchResponse:
    broker, epoch = session.broker, request.share_session_epoch
    member = member_of(request)
    if request.is_renew_ack:
        check_renewing_fetch(request)
    session.fetched_at = trio.current_time()
    deadline = session.fetched_at + _max_wait(session, request)
    share = await _session(session, member, request, deadline)
    acknowledging = Acknowledging(broker, member, renews=request.is_renew_ack)
    answer = _Answer(session, request, share)
    await answer.acknowledge(acknowledging)
    if epoch == CLOSES:
        broker.shares.close(share)
    elif not request.is_renew_ack:
        await answer.fetch(deadline)
    await acknowledging.durable()
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=broker.shares.lock_ms(member.group),
        responses=await answer.topics(),
    )


def _max_wait(session: Session, request: ShareFetchRequest) -> float:
    longest = session.broker.config.connections_max_idle_ms
    wait = request.max_wait_ms if longest < 0 else min(request.max_wait_ms, longest)
    return wait / 1000


async def _session(
    session: Session, member: Member, request: ShareFetchRequest, deadline: float
) -> ShareSession[Session]:
    named = [
        (Partition(topic.topic_id, partition.partition_index), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        return session.broker.shares.fetch(
            member,
            request.share_session_epoch,
            session,
            added=[partition for partition, _ in named],
            forgotten=[
                Partition(topic.topic_id, number)
                for topic in request.forgotten_topics_data
                for number in topic.partitions
            ],
            acknowledges=any(asked.acknowledgement_batches for _, asked in named),
        )
    except ShareSessionLimitReached:
        with session.long_poll():
            await trio.sleep_until(deadline)
        raise


class _Answer:
    """What is said of each partition."""

    def __init__(
        self, session: Session, request: ShareFetchRequest, share: ShareSession[Session]
    ) -> None:
        self._session = session
        self._broker = session.broker
        self._request = request
        self._share = share
        self._whole = request.share_acquire_mode == BATCH_OPTIMIZED
        self._acknowledged: dict[Partition, Answerable | None] = {}
        self._failed: dict[Partition, Answerable] = {}
        self._acquired: dict[Partition, Acquired] = {}
        self._size = 0
        self._records = 0
        self._waiters: list[Waiter] = []
        """The partitions in which there was nothing."""

    async def topics(self) -> list[ShareFetchableTopicResponse]:
        told = {**self._acknowledged, **self._failed, **self._acquired}
        if self._request.share_session_epoch == OPENS:
            told = {**dict.fromkeys(self._share.partitions), **told}
        data = []
        turn = Turn()
        for partition in told:
            data.append((partition, self._data(partition)))
            if turn.over:
                await turn.give_way()
        return [ShareFetchableTopicResponse(*topic) for topic in by_topic(data).items()]

    def _data(self, partition: Partition) -> SharePartitionData:
        failed, acked = self._failed.get(partition), self._acknowledged.get(partition)
        records, _, ranges, _ = self._acquired.get(partition, NOTHING)
        return SharePartitionData(
            partition_index=partition.number,
            error_code=failed.error_code if failed else ErrorCode.NONE,
            error_message=str(failed) if failed else None,
            acknowledge_error_code=acked.error_code if acked else ErrorCode.NONE,
            acknowledge_error_message=str(acked) if acked else None,
            records=records or b"",
            acquired_records=[AcquiredRecords(*each) for each in ranges],
        )

    async def acknowledge(self, acknowledging: Acknowledging) -> None:
        turn = Turn()
        for topic in self._request.topics:
            for asked in topic.partitions:
                if not asked.acknowledgement_batches:
                    continue
                partition = Partition(topic.topic_id, asked.partition_index)
                error = await acknowledging.apply(partition, asked.acknowledgement_batches)
                self._acknowledged[partition] = error
                if turn.over:
                    await turn.give_way()

    async def fetch(self, deadline: float) -> None:
        session, request, share = self._session, self._request, self._share
        broker, account = self._broker, session.account
        wanted = min(request.max_bytes, broker.config.fetch_max_bytes)
        while True:
            await self._acquire(min(wanted, account.grant(max(wanted, ONE_BATCH))))
            account.made(self._size)
            if share.ended:
                raise ShareSessionNotFound(
                    f"the share session of member {share.member.id} has ended meanwhile: it was closed, or "
                    "opened again on another connection"
                )
            if self._size or self._wants_nothing() or self._has_nothing_to_wait_for():
                broker.traffic.fetched_bytes += self._size
                return
            if trio.current_time() >= deadline or session.ending:
                return
            with session.long_poll():
                await broker.sharing.wait(
                    (), self._waiters, deadline, broker.coordinator.request_rebalance
                )

    def _wants_nothing(self) -> bool:
        return self._request.max_records <= 0 or self._request.max_bytes <= 0

    def _has_nothing_to_wait_for(self) -> bool:
        """Nothing is read, and there is something to say: errors, acknowledgements, other partitions. A
        client that has not noticed yet that its topics are gone waits: it would ask again at once."""
        request, failed = self._request, self._failed
        if any(partition not in failed for partition in self._share.partitions):
            return False
        return bool(failed or request.topics or request.forgotten_topics_data)

    async def _acquire(self, room: int) -> None:
        """One pass over the partitions of the session."""
        share, most = self._share, self._request.max_records
        waited, self._waiters = self._waiters, []
        partitions = list(share.partitions)
        self._failed = {p: why for p, why in self._failed.items() if p not in share.partitions}
        start = share.epoch % len(partitions) if partitions else 0
        turn = Turn()
        for partition in partitions[start:] + partitions[:start]:
            if self._wants_nothing() or self._records >= most or share.ended:
                break
            if self._size and self._size >= room:
                break
            await self._acquire_from(partition, most - self._records, room - self._size)
            if turn.over:
                await turn.give_way()
        for waiter in waited:  # several may have been given something at once, more than it takes
            self._broker.sharing.shares.return_unsent(waiter)

    async def _acquire_from(self, partition: Partition, most: int, room: int) -> None:
        broker = self._broker
        try:
            subject = find_partition(broker, "", partition.number, partition.topic_id)
        except Refused as error:
            self._failed[partition] = error
            self._share.partitions.pop(partition, None)
            return
        try:
            holding = broker.shares.holding(self._share.member, subject)
            if holding is None:
                return
            acquired = await broker.sharing.shares.acquire(
                subject, *holding, most=most, limit=room, whole=self._whole
            )
        except ANSWERABLE as error:
            self._failed[partition] = error
            return
        if acquired.ranges:
            self._acquired[partition] = acquired
            self._size += acquired.size
            self._records += sum(last - first + 1 for first, last, _ in acquired.ranges)
        elif acquired.waiter is not None:
            self._waiters.append(acquired.waiter)
