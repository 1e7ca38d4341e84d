"""A story in which syncs are held back, and the power goes whenever it likes.

Steps are words; each is begun and not waited for, since an answer may be held as long as the syncs are.
What was not answered when the power goes may be there afterwards or not; what was answered must be.

    send, commit, turn         a message; a plain commit; the members fetch and commit
    park soon, mid, far        a message for later: a second, 46 minutes, 3 hours
    cancel, move               one of those that have been parked
    hold, release              the syncs of both logs, from here on
    second, minutes, hour      time passes: the wall clock is set ahead by nine minutes, or by an hour
    kill, stop, (cut, seed, mood)   the broker ends so, and starts again
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import wait_all_tasks_blocked

from kumquat.core.wheel.tests.delays import Message, batch
from kumquat.gateway.tests.fault_story import HOUR, LASTING, MINUTE, PLAIN, SHARED, SHORT, Story
from kumquat.gateway.tests.harness import produce
from kumquat.gateway.tests.lives import Caller, World
from kumquat.gateway.tests.one_thread import gate
from kumquat.gateway.tests.patient_clients import Parked
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kumquat.core.logs.tests.disk import Mood

    Step = str | tuple[str, int, Mood]

DELAYS = {"soon": 1_000, "mid": 46 * MINUTE, "far": 3 * HOUR}
LEAPS = {"second": 0, "minutes": 9 * MINUTE, "hour": HOUR}


class HeldStory(Story):
    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        super().__init__(world)
        self._nursery = nursery
        self._client = Caller(world, "client")
        self._asking: set[trio.CancelScope] = set()
        self._busy: set[str] = set()
        """Members, and the committer, that wait for an answer."""
        self._named: list[bytes] = []

    async def tell_steps(self, steps: list[Step]) -> None:
        await self._begin()
        for step in steps:
            await self._step(step)
            await wait_all_tasks_blocked()
        gate.release()
        await self._pass(3)
        await self._end_life()
        await self._producer.begin()
        for leap in (HOUR, HOUR, 8 * HOUR):
            self.world.clock.jump(leap)
            await self._pass(3)
        await self._check()

    async def _begin(self) -> None:
        for name, configs in LASTING.items():
            await self._create(name, configs)
        await self.world.broker.registry.alter_group("sharers", {"consume.mode": "shared"})
        await self._producer.begin()
        for member in self._members:
            await member.begin()
        await self._producer.plain(SHORT, self._value("short"))

    async def _turn(self) -> int:
        """Without the members whose handlers fail: those are the other story's."""
        return sum([await member.turn() for member in self._members])

    def _unfinished(self) -> list[str]:
        return []

    async def _check_failures(self) -> None:
        pass

    async def _step(self, step: Step) -> None:
        match step:
            case "hold":
                gate.hold()
            case "release":
                gate.release()
            case "second" | "minutes" | "hour":
                self.world.clock.jump(LEAPS[step])
                await trio.sleep(2.2)
            case "stop" | "kill" | (str(), int(), str()):
                await self._restart(step)
            case "turn":
                for member in self._members:
                    self._ask(member.turn, member.id)
            case "commit":
                self._ask(self._commit_once, "committer")
            case str():
                self._ask(partial(self._send, step))

    # --- lives -----------------------------------------------------------------------------------

    async def _restart(self, step: Step) -> None:
        if step == "stop":
            gate.release()
            await wait_all_tasks_blocked()
        await self._end_life()
        match step:
            case "stop":
                await self.world.stop()
            case "kill":
                await self.world.kill()
            case (_, seed, mood):
                await self.world.cut(seed, mood)
        await self.world.start()
        for member in self._members:
            await member.begin_again()

    async def _end_life(self) -> None:
        """Nobody is answered any more."""
        for scope in self._asking:
            scope.cancel()
        await wait_all_tasks_blocked()
        self._asking.clear()
        self._busy.clear()

    def _ask(self, ask: Callable[[], Awaitable[Any]], who: str = "") -> None:
        if who in self._busy:
            return
        self._busy.update({who} - {""})
        self._nursery.start_soon(self._asked, ask, who)

    async def _asked(self, ask: Callable[[], Awaitable[Any]], who: str) -> None:
        with trio.CancelScope() as scope:
            self._asking.add(scope)
            await ask()
            self._busy.discard(who)

    # --- requests --------------------------------------------------------------------------------

    async def _commit_once(self) -> None:
        offset = self.world.broker.log.subjects.by_name[PLAIN].readable_end
        self._maybe_committed.add(offset)
        await self._commit_plain()

    async def _send(self, step: str) -> None:
        kind, _, when = step.partition(" ")
        if kind == "send":
            await self._send_plain()
        elif kind == "park":
            await self._park(when)
        elif self._named:
            await self._change(move=kind == "move")

    async def _send_plain(self) -> None:
        value = self._value("m")
        topic = SHARED if self._count % 2 else PLAIN
        self.book.maybe.add(value)
        base, code = await self._produce(topic, (value, []))
        assert code == 0, code
        self.book.acked[topic, base] = value

    async def _park(self, when: str) -> None:
        value, now = self._value(when), self.world.clock.now_ms()
        parked = self.book.parked[value] = Parked(SHARED, now + DELAYS[when], certain=False)
        headers = [(b"qmq-deliver-at", b"%d" % parked.due), (b"qmq-delay-id", value[:100])]
        self._named.append(value)
        _, code = await self._produce(SHARED, (value, headers))
        assert code == 0, code
        parked.acked_at = self.world.clock.now_ms()
        parked.certain = not parked.doubted

    async def _change(self, *, move: bool) -> None:
        """Cancel or move the message that was parked last. It may be too late for that."""
        value, now = self._named.pop(), self.world.clock.now_ms()
        parked = self.book.parked[value]
        was_certain, parked.certain, parked.doubted = parked.certain, False, True
        headers = [(b"qmq-delay-cancel", value[:100])]
        if move:
            parked.dues.add(now + HOUR)
            headers.append((b"qmq-deliver-at", b"%d" % (now + HOUR)))
        _, code = await self._produce(SHARED, (b"", headers))
        if code == ErrorCode.INVALID_RECORD:  # it was delivered before
            parked.certain = was_certain
            return
        assert code == 0, code
        if move:
            parked.due, parked.dues = (
                now + HOUR,
                {parked.due} - ({parked.due} if was_certain else set()),
            )
            parked.certain = was_certain
        else:
            parked.cancelled, parked.certain = True, was_certain

    async def _produce(self, topic: str, message: Message) -> tuple[int, int]:
        made = batch(message, timestamp=self.world.clock.now_ms())
        request = produce(topic, records=memoryview(made))  # type: ignore[arg-type]
        answer = await self._client.call(request, 9)
        partition = answer.responses[0].partition_responses[0]
        return partition.base_offset, partition.error_code
