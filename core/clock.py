"""Clocks, in milliseconds since the epoch.

The wall clock is what the message log stores, and what delayed messages go by. It can be set: an operator
may set it back by an hour.

Groups live by a steady clock: leases, retries and offsets past their retention must not wait for an hour
because somebody has set the clock. It begins with the wall clock, or with the latest time that the action
log knows if that is later, and then goes on with a clock that nobody sets: the monotonic one, or the event
loop's while that runs. So it never goes back, over starts of the broker too.

How long the broker was down, only the wall clock tells. If it is an hour ahead at a start, that hour counts
as time that has passed, and retries come up to an hour early. While the broker runs it changes nothing.
"""

import time
from collections.abc import Callable


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SteadyClock:
    def __init__(self) -> None:
        self._ms: Callable[[], float] = _monotonic_ms
        self._ahead = wall_clock_ms() - self._ms()

    def __call__(self) -> int:
        return int(self._ahead + self._ms())

    def not_before(self, ms: int) -> None:
        """It is at least that late."""
        self._ahead = max(self._ahead, ms - self._ms())

    def follow(self, seconds: Callable[[], float]) -> None:
        """Go on with another clock from here on."""
        self._go_on_with(lambda: seconds() * 1000)

    def unfollow(self) -> None:
        self._go_on_with(_monotonic_ms)

    def _go_on_with(self, ms: Callable[[], float]) -> None:
        now = self._ahead + self._ms()
        self._ms = ms
        self._ahead = now - ms()


def _monotonic_ms() -> float:
    return time.monotonic_ns() / 1_000_000
