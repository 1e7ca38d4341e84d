"""SIGTERM and Ctrl-C while a command runs: it ends in the same way, and nothing is left half done.

    with terminable():        SIGTERM raises Terminated, which is a KeyboardInterrupt
        with held:            neither of the two interrupts what is in here
            client.poll()

A client of kafka-python does not survive an exception in the middle of a call: a request may have left in
part, or a record may have no callback yet. So calls of it are `held`: a signal that comes meanwhile is
raised at the end of the call. Any later one is raised at once, since the call may never end.

A signal that the parent ignores stays ignored: a shell without job control ignores SIGINT for what it runs
in the background, and SIGTERM ends it there. `kumquat serve` takes its signals itself (process/server.py).
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


class _Held:
    """Calls that are not interrupted. Not reentrant; for the main thread, which alone gets signals."""

    def __init__(self) -> None:
        self._holding = False
        self._count = 0
        self._waiting: KeyboardInterrupt | None = None

    def __enter__(self) -> None:
        self._holding = True

    def __exit__(self, *_error: object) -> None:
        self._holding = False
        if (came := self._waiting) is not None:
            self._waiting = None
            raise came

    def begin(self) -> None:
        """Another command: the next signal is its first."""
        self._count = 0

    def take(self, number: int, _frame: FrameType | None) -> None:
        came = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        self._count += 1
        if self._holding and self._count == 1:
            self._waiting = came
            return
        self._waiting = None
        raise came


held = _Held()


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGINT are raised as exceptions, unless they are ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    taken = [number for number in numbers if before[number] is not signal.SIG_IGN]
    held.begin()
    for number in taken:
        signal.signal(number, held.take)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])
