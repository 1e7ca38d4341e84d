"""Clients that try again until they are answered, and keep book of what they were promised.

A client retries what real ones retry: KAFKA_STORAGE_ERROR, and COORDINATOR_NOT_AVAILABLE and its like. Any
other code is a failure of the test, CORRUPT_MESSAGE above all, since nothing is damaged. Producers are
idempotent. Who is not answered well within MOST_TRIES seconds (of the mock clock) finds that the broker
does not go on by itself.

The `Book` knows, of each message, where it was acked, or when it is due and what became of it; the
`GroupBook` what a group was handed and what it committed. `Book.check` holds a topic, read from end to end,
against it: nothing acked is lost, doubled, early or moved, and nothing is there that nobody sent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kumquat.core.errors import StorageError
from kumquat.core.records.batch import OVERHEAD, read_head
from kumquat.core.records.records import Record, records_of
from kumquat.core.wheel.tests.delays import Message, batch
from kumquat.gateway.tests.lives import Caller
from kumquat.gateway.tests.members import Member, fetch_request
from kumquat.gateway.wire import InitProducerIdRequest
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.meta.values import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kumquat.gateway.tests.lives import World

MOST_TRIES = 60
AGAIN = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
REJOIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
)


@dataclass
class Parked:
    """A message for later."""

    topic: str
    due: int
    acked_at: int = 0
    """A time that has passed when the message is taken means then."""
    cancelled: bool = False
    certain: bool = True
    """Whether what is known of it was acked; else it may be there or not."""
    doubted: bool = False
    """A cancel or a move was sent after it."""
    dues: set[int] = field(default_factory=set)
    """Where nobody knows: other times that it may be due at."""


@dataclass
class Book:
    acked: dict[tuple[str, int], bytes] = field(default_factory=dict)
    """Topic and offset → value."""
    parked: dict[bytes, Parked] = field(default_factory=dict)
    maybe: set[bytes] = field(default_factory=set)
    """Sent and never answered: there once, or not at all."""
    shown: dict[tuple[str, int], bytes] = field(default_factory=dict)
    """What readers saw."""

    def check(self, topic: str, records: list[Record], first: int, *, over: bool) -> None:
        """`first`: what is below was deleted by retention. `over`: all is due by now."""
        found = {record.offset: record.value or b"" for record in records}
        for told in (self.acked, self.shown):
            for (of, offset), value in told.items():
                if of == topic and offset >= first:
                    assert found.get(offset) == value, f"{topic}: {value!r} at {offset} is gone"
        times = Counter(found.values())
        for value, count in times.items():
            assert count == 1, f"{topic}: {value!r} comes {count} times"
        known = {value for (of, _), value in self.acked.items() if of == topic}
        for value in times.keys() - known - self.maybe:
            assert value in self.parked, f"{topic}: nobody sent {value!r}"
            assert self.parked[value].topic == topic, f"{value!r} is in the wrong topic"
        for record in records:
            self._check_time(record)
        if over and not first:
            for value, parked in self.parked.items():
                if parked.topic == topic and parked.certain and not parked.cancelled:
                    assert value in times, f"{topic}: {value!r} was not delivered"
        self.shown.update({(topic, offset): value for offset, value in found.items()})

    def _check_time(self, record: Record) -> None:
        parked = self.parked.get(record.value or b"")
        if parked is None:
            return
        assert not (parked.cancelled and parked.certain), f"{record.value!r} was cancelled"
        due = int(dict(record.headers)["qmq-due-ms"] or b"")
        late = parked.due < due <= parked.acked_at
        assert due == parked.due or due in parked.dues or late, (
            f"{record.value!r} is due at {parked.due}, and was delivered as due at {due}"
        )
        assert record.timestamp >= due, f"{record.value!r} is early"


async def insist(
    world: World, ask: Callable[[], Awaitable[Any]], code: Callable[[Any], int]
) -> Any:
    """Ask until the answer is none of AGAIN."""
    for _ in range(MOST_TRIES):
        answer = await ask()
        if code(answer) not in AGAIN:
            return answer
        await world.patience()
    raise AssertionError(f"still {ErrorCode(code(answer)).name} after {MOST_TRIES} tries")


class Producer:
    def __init__(self, world: World, book: Book) -> None:
        self._world = world
        self._book = book
        self._caller = Caller(world, "producer")
        self._id = -1
        self._sequence: Counter[str] = Counter()

    async def begin(self) -> None:
        """Take an identity."""
        answer = await insist(
            self._world,
            lambda: self._caller.call(InitProducerIdRequest(transactional_id=None), 1),
            lambda answer: int(answer.error_code),
        )
        assert answer.error_code == 0
        assert answer.producer_id != self._id, "a producer id was given twice"
        self._id, self._sequence = answer.producer_id, Counter()

    async def send(self, topic: str, *messages: Message) -> int:
        """Until it is acked; gives the base offset."""
        made = batch(
            *messages,
            timestamp=self._world.clock.now_ms(),
            producer_id=self._id,
            epoch=0,
            first=self._sequence[topic],
        )
        answer = await insist(self._world, lambda: self._once(topic, made), _code_of_produce)
        code = ErrorCode(_code_of_produce(answer))
        assert code == 0, f"a batch for {topic} was refused: {code.name}"
        self._sequence[topic] += len(messages)
        return int(answer.responses[0].partition_responses[0].base_offset)

    async def _once(self, topic: str, made: bytearray) -> Any:
        from kumquat.gateway.tests.harness import produce

        request = produce(topic, records=memoryview(bytearray(made)))  # type: ignore[arg-type]
        return await self._caller.call(request, 9)

    async def plain(self, topic: str, *values: bytes) -> None:
        base = await self.send(topic, *((value, []) for value in values))
        for number, value in enumerate(values):
            self._book.acked[topic, base + number] = value

    async def later(self, topic: str, value: bytes, due: int, name: bytes | None = None) -> None:
        await self.mixed(topic, None, value, due, name)

    async def mixed(
        self, topic: str, now: bytes | None, value: bytes, due: int, name: bytes | None = None
    ) -> None:
        """One batch with a message for now and one for later; or the latter alone."""
        headers = [(b"qmq-deliver-at", b"%d" % due)]
        headers += [(b"qmq-delay-id", name)] if name else []
        first: list[Message] = [] if now is None else [(now, [])]
        base = await self.send(topic, *first, (value, headers))
        self._book.parked[value] = Parked(topic, due, self._world.clock.now_ms())
        if now is not None:
            self._book.acked[topic, base] = now

    async def cancel(self, topic: str, name: bytes, value: bytes) -> None:
        """As a record of its own. It comes well before the message is due."""
        await self.send(topic, (b"", [(b"qmq-delay-cancel", name)]))
        self._book.parked[value].cancelled = True

    async def move(self, topic: str, name: bytes, value: bytes, due: int) -> None:
        headers = [(b"qmq-delay-cancel", name), (b"qmq-deliver-at", b"%d" % due)]
        await self.send(topic, (b"", headers))
        self._book.parked[value].due = due


def _code_of_produce(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


class Operator:
    """Cancels and moves by hand, as `kumquat delay` does."""

    def __init__(self, world: World, book: Book) -> None:
        self._world = world
        self._book = book

    async def cancel(self, topic: str, name: str, value: bytes) -> None:
        shown = await self._insist(lambda d, s: d.cancel(s, delay_id=name), topic)
        assert shown.status == "cancelled", f"{value!r}: {shown.status}"
        self._book.parked[value].cancelled = True

    async def move(self, topic: str, name: str, value: bytes, due: int) -> None:
        shown = await self._insist(lambda d, s: d.move(s, delay_id=name, due=due), topic)
        assert shown.status == "moved", f"{value!r}: {shown.status}"
        self._book.parked[value].due = due

    async def count(self, topic: str) -> int:
        pending: int = await self._insist(lambda d, s: d.count(s, 0, LONG_MAX), topic)
        return pending

    async def check_list(self) -> None:
        """What is pending is listed: all that is due a minute from now or later, and nothing else."""
        soonest = self._world.clock.now_ms() + 60_000
        page = await self._insist(
            lambda d, _: d.list(None, soonest, LONG_MAX, None, 1_000), "plain"
        )
        found = sorted(pending.due for pending in page.items)
        wanted = [
            parked.due
            for parked in self._book.parked.values()
            if not parked.cancelled and parked.due >= soonest
        ]
        assert found == sorted(wanted), "what is pending is not what is listed"

    async def _insist(self, ask: Callable[[Any, Any], Awaitable[Any]], topic: str) -> Any:
        for _ in range(MOST_TRIES):
            broker = self._world.broker
            try:
                return await ask(broker.delay, broker.log.subjects.by_name[topic])
            except StorageError:
                await self._world.patience()
        raise AssertionError("still no answer")


class Reader:
    """Reads plain offsets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._caller = Caller(world, "reader")

    async def read(self, topic: str, *, max_bytes: int = 3_000) -> tuple[list[Record], int]:
        """All of a topic, and the offset that it begins at."""
        found: list[Record] = []
        first = at = 0
        while True:
            answer = await insist(
                self._world,
                lambda at=at: self._caller.call(  # type: ignore[misc]
                    fetch_request(topic, at, max_wait_ms=0, max_bytes=max_bytes), 11
                ),
                _code_of_fetch,
            )
            partition = answer.responses[0].partitions[0]
            if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not found:
                subject = self._world.broker.log.subjects.by_name[topic]
                assert at < subject.earliest, f"{topic}: {at} is out of range"
                first = at = subject.earliest
                continue
            code = ErrorCode(partition.error_code)
            assert code == 0, f"{topic} cannot be read at {at}: {code.name}"
            records, behind = _records(b"".join(partition.records), at)
            if not records and behind == at:
                assert at == partition.high_watermark, f"{topic}: nothing at {at}"
                return found, first
            found += records
            at = behind


class _Batches(NamedTuple):
    records: list[Record]
    behind: int


def _records(data: bytes, at: int) -> _Batches:
    """What an answer holds from an offset on, and where the next Fetch begins."""
    view, found, behind = memoryview(data), [], at
    while view:
        head = read_head(view)
        size = head.length + OVERHEAD
        found += [record for record in records_of(view[:size], 1 << 20) if record.offset >= at]
        behind = head.base_offset + head.last_offset_delta + 1
        view = view[size:]
    return _Batches(found, behind)


def _code_of_fetch(answer: Any) -> int:
    return int(answer.responses[0].partitions[0].error_code)


class GroupBook:
    """What the members of a group were handed, and what they have committed."""

    def __init__(self) -> None:
        self.handed_out: set[bytes] = set()
        self.committed: set[bytes] = set()


class Sharer(Member):
    """A member of a sharing group that lives through all of the broker's lives."""

    def __init__(self, world: World, name: str, group: str, topic: str, book: GroupBook) -> None:
        caller: Any = Caller(world, name)
        super().__init__(group, topic, caller, caller)
        self._world = world
        self._book = book
        self._held: list[tuple[int, bytes]] = []

    async def _call(self, request: Any, version: int) -> Any:
        return await insist(
            self._world, lambda: self._coordinator.call(request, version), _code_of_group
        )

    async def begin(self) -> None:
        self._held = []
        for _ in range(MOST_TRIES):
            if await self.join():
                return
            while await self.heartbeat() not in REJOIN:
                await self._world.patience()
        raise AssertionError(f"{self.topic} is not assigned to {self.id}")

    async def turn(self, *, commit: bool = True) -> int:
        """Heartbeat, fetch what there is, commit it; gives how many messages it was handed."""
        beat = await self.heartbeat()
        if beat == ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        if beat in REJOIN:
            await self.begin()
        request = fetch_request(self.topic, self.position, max_wait_ms=100)
        answer = await self._coordinator.call(request, 11)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == 0, f"a sharing member is told {partition.error_code}"
        found = _records(b"".join(partition.records or [b""]), self.position).records
        for record in found:
            if await self.handle(record):
                self._held.append((record.offset, record.value or b""))
        if found:
            self.position = found[-1].offset + 1
        if commit and self._held:
            await self.commit_held()
        return len(found)

    async def handle(self, record: Record) -> bool:
        """Whether it is handled when it is committed."""
        value = record.value or b""
        assert value not in self._book.committed, f"{value!r} was committed and comes again"
        self._book.handed_out.add(value)
        return True

    async def commit_held(self) -> None:
        position, code = self.position, await self.commit()
        if code in REJOIN:
            await self.begin()
            return
        assert code == 0, ErrorCode(code).name
        self._book.committed.update(value for offset, value in self._held if offset < position)
        self._held = []

    async def begin_again(self) -> None:
        """As a client that was started again: what it held and has not committed goes to anybody."""
        self.id = ""
        await self.begin()


def _code_of_group(answer: Any) -> int:
    code = getattr(answer, "error_code", 0)
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            code = code or partition.error_code
    return int(code)
