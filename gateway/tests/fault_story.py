"""The story that is told with each fault: all that a broker does, in three lives and a power cut.

    life 1   topics are made; one of them fills segments that retention will delete. Two members share a
             topic, a group commits plain offsets, messages are parked, cancelled and moved by producers and
             by hand. Members of another group, and of a share group, cannot handle some messages: these are
             retried, or become dead letters. Retention deletes. Then kill -9.
    life 2   the same again, with cold reads; hours pass, messages become due; schedule files are merged.
             Then a clean stop.
    life 3   more hours pass, until nothing is pending. What was promised is checked: by then whatever was
             struck has had its time to heal.
    life 4   after a power cut that leaves only what was synced: all that was acked is still there.

Each life is a few dozen messages. Where something fails, clients try again (patient_clients.py).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import trio

from kumquat.core.delivery.commands import TOPIC
from kumquat.core.logs.messages.keys.build import wanted_in
from kumquat.gateway.net.dispatch import ANSWERABLE
from kumquat.gateway.tests.failing_clients import Failer, FailureBook, ShareFailer
from kumquat.gateway.tests.lives import Caller, World, lives
from kumquat.gateway.tests.patient_clients import (
    AGAIN,
    MOST_TRIES,
    Book,
    GroupBook,
    Operator,
    Producer,
    Reader,
    Sharer,
    insist,
)
from kumquat.gateway.wire import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.tests.faulty_files import Trace

MINUTE = 60_000
HOUR = 60 * MINUTE
SHORT, SHARED, PLAIN, GONE = "short", "shared", "plain", "gone"
FAILING = {"failing": "failers", "failing-shares": "share-failers"}
"""Topics with messages that cannot be handled, and the groups that read them."""
LETTERS = [f"{topic}.{group}.dlq" for topic, group in FAILING.items()]
RETRY_CONFIGS = {"retry.backoff.ms": "300"}
RETENTION_MS = 10 * MINUTE
LASTING: dict[str, dict[str, str]] = {
    SHORT: {"retention.ms": str(RETENTION_MS)},
    SHARED: {"index.keys": "true"},
    PLAIN: {},
    **{topic: {} for topic in FAILING},
}
_PADDING = b"." * 120


class Story:
    def __init__(self, world: World) -> None:
        self.world = world
        self.book = Book()
        self.groups = GroupBook()
        self._producer = Producer(world, self.book)
        self._operator = Operator(world, self.book)
        self._reader = Reader(world)
        self._admin = Caller(world, "admin")
        self._members = [
            Sharer(world, name, "sharers", SHARED, self.groups) for name in ("one", "two")
        ]
        failing, shares = FAILING.items()
        self._failures = [FailureBook(), FailureBook()]
        self._failer = Failer(world, "three", failing[1], failing[0], self._failures[0])
        self._share_failer = ShareFailer(world, "four", shares[1], shares[0], self._failures[1])
        self._count = 0
        self._committed = -1
        self._maybe_committed: set[int] = set()
        """Positions whose commit was not answered."""

    async def tell(self) -> None:
        await self._life_1()
        await self.world.kill()
        await self.world.start()
        await self._life_2()
        await self.world.stop()
        await self.world.start()
        await self._life_3()
        await self.world.cut(0, "nothing")
        await self.world.start()
        await self._life_4()

    # --- lives -----------------------------------------------------------------------------------

    async def _life_1(self) -> None:
        for name, configs in {**LASTING, GONE: {}}.items():
            await self._create(name, configs)
        alter = self.world.broker.registry.alter_group
        failers, share_failers = FAILING.values()
        await alter("sharers", {"consume.mode": "shared"})
        await alter(failers, {"consume.mode": "shared", **RETRY_CONFIGS})
        await alter(share_failers, {"share.auto.offset.reset": "earliest", **RETRY_CONFIGS})
        await self.world.broker.subjects.make_retry()
        if TOPIC not in self.world.broker.log.subjects.by_name:
            await self._create(TOPIC, {})
        await self._producer.begin()
        due = self.world.clock.now_ms() + 9 * HOUR
        for _ in range(3):
            await self._producer.later(SHARED, self._value("outlives-its-segment"), due)
        for _ in range(10):
            await self._producer.plain(SHORT, *(self._value("short") for _ in range(6)))
        await self._producer.mixed(GONE, self._value("gone"), self._value("gone"), due)
        for member in [*self._members, self._failer]:
            await member.begin()
        for _ in range(2):
            await self._round()
        self.world.clock.jump(RETENTION_MS + 1)
        await self._pass(12)

    async def _life_2(self) -> None:
        self.world.files.cold = True
        await self._delete(GONE)
        await self._producer.begin()
        for _ in range(5):
            await self._round()
            self.world.clock.jump(10 * MINUTE)
            await self._pass(2)
        await self._read_all(over=False)
        await self._operator.check_list()

    async def _life_3(self) -> None:
        self.world.files.cold = False
        await self._round()
        for _ in range(4):
            self.world.clock.jump(HOUR)
            await self._pass(3)
        await self._round()
        self.world.clock.jump(8 * HOUR)
        await self._pass(40)
        await self._check()
        self._check_chores()

    async def _life_4(self) -> None:
        await self._check()

    # --- what happens ----------------------------------------------------------------------------

    async def _round(self) -> None:
        """A bit of everything."""
        self._count += 1
        n, now = self._count, self.world.clock.now_ms()
        producer = self._producer
        await producer.plain(SHARED, *(self._value("m") for _ in range(5)))
        await producer.plain(PLAIN, *(self._value("p") for _ in range(4)))
        for topic in FAILING:
            values = [self._value(kind) for kind in ("good", "again", "reject", "good", "reject")]
            await producer.plain(topic, *values)
        await producer.later(SHARED, self._value("soon"), now + 1_500)
        await producer.mixed(SHARED, self._value("now"), self._value("later"), now + 30 * MINUTE)
        far, name = now + 3 * HOUR, b"n%d" % n
        values = [self._value(kind) for kind in ("cancel", "move", "by-hand", "moved-by-hand")]
        for i, value in enumerate(values):
            await producer.later(PLAIN, value, far + i, name + b"-%d" % i)
        await self._turn()
        await producer.cancel(PLAIN, name + b"-0", values[0])
        await producer.move(PLAIN, name + b"-1", values[1], now + 2 * HOUR)
        await self._operator.cancel(PLAIN, f"n{n}-2", values[2])
        await self._operator.move(PLAIN, f"n{n}-3", values[3], now + 4 * HOUR)
        await self._commit_plain()
        await self._pass(2)

    async def _pass(self, seconds: int) -> None:
        """Time passes, and the members go on reading."""
        for at in range(0, seconds, 4):
            await trio.sleep(min(4, seconds - at))
            await self._turn()
        if self.world.fenced:
            await self.world.patience()
        if self.world.restarted:
            # What was acked since a sync failed is on disk, and so is what it builds on.
            self.world.restarted = False
            await self.world.cut(0, "nothing")
            await self.world.start()

    async def _turn(self) -> int:
        """Gives how many messages were handed to anybody."""
        members: list[Sharer | ShareFailer] = [*self._members, self._failer, self._share_failer]
        return sum([await member.turn() for member in members])

    async def _create(self, name: str, configs: dict[str, str]) -> None:
        for _ in range(MOST_TRIES):
            broker = self.world.broker
            try:
                await broker.subjects.create(name, configs)
            except ANSWERABLE as error:
                if error.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    subject = broker.log.subjects.by_name[name]
                    await broker.subjects.alter(subject, configs)
                    return
                if error.error_code not in AGAIN:
                    raise
                await self.world.patience()
            else:
                return
        raise AssertionError(f"{name} still cannot be made")

    async def _delete(self, name: str) -> None:
        for _ in range(MOST_TRIES):
            subject = self.world.broker.log.subjects.by_name.get(name)
            if subject is None:
                break
            try:
                await self.world.broker.subjects.delete(subject)
            except ANSWERABLE as error:
                if error.error_code not in AGAIN:
                    raise
                await self.world.patience()
        for value in [value for value, parked in self.book.parked.items() if parked.topic == name]:
            self.book.parked[value].cancelled = True

    async def _commit_plain(self) -> None:
        """A consumer that keeps no membership. Where it was is known before it goes on."""
        await self._check_commit()
        offset = self.world.broker.log.subjects.by_name[PLAIN].readable_end
        partition = OffsetCommitRequestPartition(0, offset, committed_metadata="x" * 3_000)
        request = OffsetCommitRequest(
            "plain", topics=[OffsetCommitRequestTopic(PLAIN, [partition])]
        )
        answer = await insist(
            self.world,
            lambda: self._admin.call(request, 7),
            lambda answer: int(answer.topics[0].partitions[0].error_code),
        )
        assert answer.topics[0].partitions[0].error_code == 0
        self._committed = offset
        self._maybe_committed.clear()

    async def _position(self, group: str, topic: str) -> int:
        request = OffsetFetchRequest(group, [OffsetFetchRequestTopic(topic, [0])])
        answer: Any = await self._admin.call(request, 5)
        partition = answer.topics[0].partitions[0]
        assert partition.error_code == 0
        return int(partition.committed_offset)

    def _value(self, kind: str) -> bytes:
        self._count += 1
        return b"%s %d " % (kind.encode(), self._count) + _PADDING

    # --- checks ----------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Nothing acked is lost, doubled, early or moved; and the broker does its work."""
        await self._go_on()
        shared = await self._read_all(over=True)
        for topic in LASTING:
            assert await self._operator.count(topic) == 0, f"{topic}: something is pending still"
        await self._drain()
        for value in shared:
            assert value in self.groups.committed, f"the group was never handed {value!r}"
        await self._check_failures()
        subject = self.world.broker.log.subjects.by_name[SHARED]
        progress = self.world.broker.actions.groups.by_name["sharers"].progress[subject.id]
        assert progress.settled, "the group has unacked messages"
        assert progress.cursor == subject.readable_end, "the group has not come to the end"
        assert self.world.damage() == (0, 0), "something readable counts as lost, or as damaged"
        assert self.world.broker.statistics().delay.failing is None

    async def _go_on(self) -> None:
        """New messages are taken and delivered, new commits stand."""
        starts = self.world.starts
        await self._producer.plain(SHARED, self._value("last"))
        soon = self.world.clock.now_ms() + 500
        await self._producer.later(SHARED, self._value("last-delayed"), soon)
        await self._pass(4)
        await self._commit_plain()
        if self.world.starts > starts:  # the fault has struck right here
            await self._pass(4)

    async def _check_commit(self) -> None:
        position = await self._position("plain", PLAIN)
        assert position in {self._committed, *self._maybe_committed}, "a commit went back"

    async def _read_all(self, *, over: bool) -> set[bytes]:
        """Gives what is in the shared topic."""
        values: dict[str, set[bytes]] = {}
        for topic in LASTING:
            records, first = await self._reader.read(topic)
            if first:
                assert topic == SHORT, f"{topic} has lost its beginning"
            self.book.check(topic, records, first, over=over)
            values[topic] = {record.value or b"" for record in records}
        return values[SHARED]

    async def _drain(self) -> None:
        quiet = 0
        for _ in range(MOST_TRIES):
            handed = await self._turn()
            quiet = 0 if handed else quiet + 1
            if quiet >= 3 and not self._unfinished():
                return
            await trio.sleep(0.5)
        raise AssertionError(f"the groups do not come to an end: {self._unfinished()}")

    def _unfinished(self) -> list[str]:
        """Groups with messages that wait for a retry, or to become dead letters."""
        broker, found = self.world.broker, []
        for topic, name in FAILING.items():
            group, subject = broker.actions.groups.by_name[name], broker.log.subjects.by_name[topic]
            progress = group.progress[subject.id]
            if not progress.settled or progress.cursor != subject.readable_end:
                found.append(name)
        return found

    async def _check_failures(self) -> None:
        """What could not be handled came again, or is a dead letter."""
        for (topic, _), name, book in zip(FAILING.items(), LETTERS, self._failures, strict=True):
            records, _ = await self._reader.read(topic)
            letters, _ = await self._reader.read(name)
            sent = {record.value or b"" for record in records}
            book.check(sent, Counter(record.value or b"" for record in letters))

    def _check_chores(self) -> None:
        """What housekeeping could not do is done by now."""
        log = self.world.broker.log.log
        short = self.world.broker.log.subjects.by_name[SHORT]
        assert short.earliest > 0, "retention has deleted nothing"
        assert not log.unindexed_segments(), "a sealed segment has no index"
        shared, keys = self.world.broker.log.subjects.by_name[SHARED], self.world.broker.keys.files
        for segment in log.state.segments[:-1]:
            missing = wanted_in(self.world.broker.log.reader, keys, segment, [shared])
            assert not missing, "a sealed segment has no index of keys"
        assert GONE not in self.world.broker.log.subjects.by_name, "a deleted topic is back"
        left = [name for name in self.world.files.names() if name.endswith(".tmp")]
        assert not left, f"left over: {left}"


async def tell(folder: Path, trace: Trace) -> Story:
    async with lives(folder, trace) as world:
        story = Story(world)
        await story.tell()
    return story
