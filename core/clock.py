"""The wall clock, as the logs store it."""

import time


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
