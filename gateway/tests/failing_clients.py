"""Clients that cannot handle some messages, and keep book of what they were promised (patient_clients.py).

A value that begins with `again` fails at its first delivery and is handled at the next; one that begins
with `reject` can never be handled. A `Failer` says so with commands of a stock client, a `ShareFailer` with
the acknowledgements of a share group. Who was answered that a message is rejected must find one dead
letter of it, and who handled a message none, and never get it again. Where an answer is lost, or the
message is no longer the member's own, both are possible; but each message ends as one or the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kumquat.core.delivery.commands import TOPIC
from kumquat.core.wheel.tests.delays import batch
from kumquat.gateway.shares.tests.consumers import (
    ACCEPT,
    REJECT,
    RELEASE,
    Batch,
    Consumer,
    values,
)
from kumquat.gateway.tests.harness import produce
from kumquat.gateway.tests.lives import Caller
from kumquat.gateway.tests.patient_clients import AGAIN, GroupBook, Sharer, insist
from kumquat.gateway.wire import ShareGroupHeartbeatRequest
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections import Counter

    from kumquat.core.records.records import Record
    from kumquat.gateway.tests.lives import World

NOT_ITS_OWN = (
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
)


@dataclass
class FailureBook(GroupBook):
    handed_out: set[bytes] = field(default_factory=set)
    committed: set[bytes] = field(default_factory=set)
    rejected: set[bytes] = field(default_factory=set)
    """And answered."""
    sent_back: set[bytes] = field(default_factory=set)
    """To come again, and answered."""
    maybe: set[bytes] = field(default_factory=set)
    """An acknowledgement was sent, and the answer was an error: it counts, or it comes again."""
    again: set[bytes] = field(default_factory=set)
    """Came as a further attempt."""

    def hand(self, value: bytes) -> None:
        assert value not in self.committed, f"{value!r} was acked and comes again"
        assert value not in self.rejected, f"{value!r} was rejected and comes again"
        self.handed_out.add(value)

    def check(self, sent: set[bytes], letters: Counter[bytes]) -> None:
        """When all is over: each message was handled, or is a dead letter, once."""
        assert not (twice := [value for value, count in letters.items() if count > 1]), twice
        assert self.rejected <= letters.keys(), "a rejected message has no dead letter"
        wrong = [value for value in letters if not value.startswith(b"reject")]
        assert not wrong, f"dead letters of messages that nobody rejected: {wrong}"
        lost = sent - self.committed - self.maybe - letters.keys()
        assert not lost, f"neither handled nor dead: {lost}"
        assert self.sent_back <= self.again, "what was sent back has not come again"


class Failer(Sharer):
    """A member of a sharing group of a stock client."""

    def __init__(self, world: World, name: str, group: str, topic: str, book: FailureBook) -> None:
        super().__init__(world, name, group, topic, book)
        self._failures = book
        self._commands: Any = Caller(world, name)

    async def handle(self, record: Record) -> bool:
        value = record.value or b""
        self._failures.hand(value)
        attempt = dict(record.headers).get("qmq-attempt")
        if attempt is not None:
            self._failures.again.add(value)
        if value.startswith(b"again") and attempt is None:
            if await self._command(record.offset, b"retry"):
                self._failures.sent_back.add(value)
            return False
        if value.startswith(b"reject"):
            if await self._command(record.offset, b"reject"):
                self._failures.rejected.add(value)
            return False
        return True

    async def _command(self, offset: int, action: bytes) -> bool:
        """Whether it was obeyed; else the message is no longer the member's own."""
        named = {
            "group": self.group.encode(),
            "subject": self.topic.encode(),
            "offset": b"%d" % offset,
            "action": action,
        }
        headers = [(b"qmq-retry-" + name.encode(), text) for name, text in named.items()]
        made = batch((b"", headers), timestamp=self._world.clock.now_ms())

        async def once() -> Any:
            request = produce(TOPIC, records=memoryview(bytearray(made)))  # type: ignore[arg-type]
            answer = await self._commands.call(request, 9)
            return answer.responses[0].partition_responses[0]

        answer = await insist(self._world, once, lambda answer: int(answer.error_code))
        code = ErrorCode(answer.error_code)
        assert code in (0, ErrorCode.INVALID_RECORD), code.name
        return code == 0


class ShareFailer:
    """A member of a share group, for all of the broker's lives."""

    def __init__(self, world: World, name: str, group: str, topic: str, book: FailureBook) -> None:
        self._world, self._name, self._group, self._topic = world, name, group, topic
        self._book = book
        self._caller: Any = Caller(world, name)
        self._consumer: Consumer | None = None
        self._starts, self._epoch = -1, 0

    async def turn(self) -> int:
        """Fetch, and acknowledge what came; gives how many."""
        if self._consumer is None or self._starts != self._world.starts:
            await self._begin()
        else:
            answer = await self._heartbeat(self._epoch)
            if answer.error_code:
                return await self._trouble(answer.error_code)
        assert self._consumer is not None
        answer = await self._consumer.fetch()  # a poll that waits needs a socket
        if answer.error_code:
            return await self._trouble(answer.error_code)
        found: dict[int, bytes] = {}
        attempts: dict[int, int] = {}
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code:
                    return await self._trouble(data.error_code)
                data.records = b"".join(data.records)  # as it is on a socket
                found |= values(data)
                for one in data.acquired_records:
                    for offset in range(one.first_offset, one.last_offset + 1):
                        attempts[offset] = one.delivery_count
        if found:
            await self._acknowledge(found, attempts)
        return len(found)

    async def _begin(self) -> None:
        subject = self._world.broker.log.subjects.by_name[self._topic]
        self._consumer = Consumer(self._caller, subject.topic_id, self._name, self._group)
        answer = await insist(
            self._world, lambda: self._heartbeat(0), lambda answer: int(answer.error_code)
        )
        assert answer.error_code == 0, answer.error_message
        self._starts, self._epoch = self._world.starts, answer.member_epoch

    async def _heartbeat(self, epoch: int) -> Any:
        topics = None if epoch else [self._topic]
        request = ShareGroupHeartbeatRequest(
            self._group, self._name, epoch, subscribed_topic_names=topics
        )
        return await self._caller.call(request, 1)

    async def _trouble(self, code: int) -> int:
        assert code in (*AGAIN, *NOT_ITS_OWN), ErrorCode(code).name
        await self._world.patience()
        self._consumer = None
        return 0

    async def _acknowledge(self, found: dict[int, bytes], attempts: dict[int, int]) -> None:
        kinds: dict[int, int] = {}
        for offset, value in sorted(found.items()):
            self._book.hand(value)
            if attempts[offset] > 1:
                self._book.again.add(value)
            kinds[offset] = (
                REJECT
                if value.startswith(b"reject")
                else RELEASE
                if value.startswith(b"again") and attempts[offset] == 1
                else ACCEPT
            )
        acks: list[Batch] = [(offset, offset, [kind]) for offset, kind in kinds.items()]
        assert self._consumer is not None
        answer = await self._consumer.acknowledge(*acks)
        code = answer.error_code
        for topic in answer.responses:
            code = code or topic.partitions[0].error_code
        if code:
            self._book.maybe.update(found.values())
            await self._trouble(code)
            return
        for offset, kind in kinds.items():
            known = {
                ACCEPT: self._book.committed,
                REJECT: self._book.rejected,
                RELEASE: self._book.sent_back,
            }
            known[kind].add(found[offset])
