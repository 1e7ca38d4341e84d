"""What ShareFetch and ShareAcknowledge have in common: who asks, and what is said of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.handlers.common.lookup import find_partition, find_subject
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.shares.acknowledgements import RENEW, check_batches
from kumquat.gateway.shares.sessions import Member, Partition
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Answerable
    from kumquat.gateway.shares.acknowledgements import Batch
    from kumquat.gateway.wire import ShareAcknowledgeRequest, ShareFetchRequest

LONGEST_MEMBER_ID = 36
CHECKED_AT_ONCE = 1000
Data = TypeVar("Data")


def member_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Member:
    """Raises Refused, where Kafka does. A member need not be known: it then holds nothing."""
    group, member_id = request.group_id, request.member_id
    if group is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "the request names no group")
    if group == INTERNAL_GROUP:
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"{group} is the broker's own")
    if not member_id or len(member_id) > LONGEST_MEMBER_ID:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"a member id has 1 to {LONGEST_MEMBER_ID} characters, not {member_id!r}",
        )
    return Member(group, member_id)


class Acknowledging:
    """The acknowledgements of one request: applied partition by partition, durable together."""

    __slots__ = ("_broker", "_member", "_position", "_renews")

    def __init__(self, broker: Broker, member: Member, *, renews: bool) -> None:
        self._broker = broker
        self._member = member
        self._renews = renews
        self._position = 0

    async def apply(self, partition: Partition, batches: Sequence[Batch]) -> Answerable | None:
        """Gives why nothing of it was applied, if so."""
        if not batches:
            return None
        broker = self._broker
        try:
            find_subject(broker, "", partition.topic_id)
            renews = await self._check(batches)
            subject = find_partition(broker, "", partition.number, partition.topic_id)
            position = broker.shares.acknowledge(self._member, subject, batches, renews=renews)
        except ANSWERABLE as error:
            return error
        if not position and not self._renews:
            # All of it was acked before. That is said again, so it has to be durable too.
            position = broker.actions.log.written_end
        self._position = max(self._position, position)
        return None

    async def _check(self, batches: Sequence[Batch]) -> bool:
        """Whether any of them renews. There may be very many, so others have their turn between some."""
        before, renews, turn = -1, False, Turn()
        for begin in range(0, len(batches), CHECKED_AT_ONCE):
            some = batches[begin : begin + CHECKED_AT_ONCE]
            before = check_batches(some, renews=self._renews, before=before)
            renews = renews or any(RENEW in batch.acknowledge_types for batch in some)
            if turn.over:
                await turn.give_way()
        return renews

    async def durable(self) -> None:
        """Until all that was applied is on disk."""
        if self._position:
            await self._broker.actions.wait_synced(self._position)


def by_topic(rows: Iterable[tuple[Partition, Data]]) -> dict[bytes, list[Data]]:
    topics: dict[bytes, list[Data]] = {}
    for partition, data in rows:
        topics.setdefault(partition.topic_id, []).append(data)
    return topics
