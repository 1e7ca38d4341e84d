"""Timers of hand-outs and locks."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kumquat.core.delivery.sharing.timers import SPARE, Timers


class Bell:
    """Notes when it was rung, and may do something then."""

    def __init__(self, now: Clock, *, fails: bool = False) -> None:
        self.now, self.fails = now, fails
        self.rung: list[int] = []
        self.heard = trio.Event()

    def feed(self) -> None:
        self.rung.append(self.now())
        self.heard.set()
        self.heard = trio.Event()
        if self.fails:
            raise ValueError("broken")


class Clock:
    """Trio's, with the fractions of a millisecond cut off, as the steady clock has them."""

    def __call__(self) -> int:
        return int(trio.current_time() * 1000)


def in_virtual_time(story: object) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            clock = Clock()
            timers = Timers(clock)
            nursery.start_soon(timers.run)
            await story(timers, clock)  # type: ignore[operator]
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_no_timer_goes_off_early_and_none_much_later() -> None:
    async def story(timers: Timers, now: Clock) -> None:
        bells = {ms: Bell(now) for ms in (1, 7, 1000, 59_999, 60_001, 200_000)}
        begin = now()
        for ms, bell in bells.items():
            timers.set(bell, begin + ms)
        await trio.sleep(201)
        for ms, bell in bells.items():
            assert len(bell.rung) == 1
            assert begin + ms <= bell.rung[0] <= begin + ms + 2

    in_virtual_time(story)


def test_a_sooner_timer_wakes_the_one_task_from_a_longer_sleep() -> None:
    async def story(timers: Timers, now: Clock) -> None:
        late, soon = Bell(now), Bell(now)
        begin = now()
        timers.set(late, begin + 50_000)
        await trio.sleep(1)
        timers.set(soon, begin + 1_500)
        timers.set(late, begin + 2_000)
        timers.set(late, begin + 9_000)
        await trio.sleep(5)
        assert (len(soon.rung), len(late.rung)) == (1, 1)
        assert late.rung[0] < begin + 2_010
        await trio.sleep(60)
        assert len(late.rung) == 1, "a timer that was replaced goes off too"

    in_virtual_time(story)


def test_one_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def story(timers: Timers, now: Clock) -> None:
        broken, good = Bell(now, fails=True), Bell(now)
        timers.set(broken, now() + 5)
        timers.set(good, now() + 5)
        await trio.sleep(1)
        assert len(good.rung) == len(broken.rung) == 1
        timers.set(broken, now() + 5)
        timers.set(good, now() + 6)
        await trio.sleep(1)
        assert len(good.rung) == len(broken.rung) == 2

    in_virtual_time(story)
    assert "failed" in caplog.text


def test_a_timer_that_sets_itself_for_the_past_does_not_stop_the_loop() -> None:
    """As a million retries do that are due while nobody takes the first of them."""

    async def story(timers: Timers, now: Clock) -> None:
        class Again(Bell):
            def feed(self) -> None:
                super().feed()
                if len(self.rung) > 10_000:
                    raise AssertionError("the loop stood still")
                timers.set(self, self.rung[0])

        again, other = Again(now), Bell(now)
        timers.set(again, now())
        timers.set(other, now())
        with trio.fail_after(1):
            while not other.rung:
                await trio.lowlevel.checkpoint()
        assert len(again.rung) < 10

    in_virtual_time(story)


def test_timers_that_were_replaced_do_not_pile_up() -> None:
    timers = Timers(lambda: 0)
    bell = Bell(Clock())
    for when in range(100_000, 0, -1):
        timers.set(bell, when)
    assert len(timers._heap) <= SPARE + 2
