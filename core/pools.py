"""Threads for work that would stop the event loop, a limited number for each kind of work.

No kind can take the threads of another: a hundred cold reads do not block deliveries. The limits
belong to the run of the event loop, as Trio's own limit does.

    await in_thread(READ, function, *arguments)

Chores (indexes, retention, closing) share Trio's default threads. SQL has a thread of its own
(meta/registry.py).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

READ: Final = "cold reads"
SEARCH: Final = "searches by time and sizes of logs"
FILL: Final = "filling, merging and loading schedule files"
DELIVER: Final = "delivering messages for later"
QUERY: Final = "lists and counts of messages for later"
DECODE: Final = "decoding large requests"
SCAN: Final = "searches by key, header and text"
KEYS: Final = "making indexes of keys"
HISTORY: Final = "encoding the history of messages"

THREADS: Final = {
    READ: 3,
    SEARCH: 2,
    FILL: 2,
    DELIVER: 2,
    QUERY: 1,
    DECODE: 1,
    SCAN: 1,
    KEYS: 1,
    HISTORY: 1,
}
"""Few: each thread that runs Python holds the GIL and makes the event loop wait."""

_limiters: trio.lowlevel.RunVar[dict[str, trio.CapacityLimiter]] = trio.lowlevel.RunVar("pools")


async def in_thread(kind: str, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Run `function(*arguments)` in a thread of this kind and return its result, or raise its error."""
    result = await trio.to_thread.run_sync(_outcome, function, arguments, limiter=limiter(kind))
    if not isinstance(result, _Failed):
        return result
    try:
        raise result.error
    finally:
        del result


class _Failed:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _outcome(function: Callable[[*Ts], T], arguments: tuple[*Ts]) -> T | _Failed:
    try:
        return function(*arguments)
    except Exception as error:
        _forget_frames(error)
        return _Failed(error)


def _forget_frames(error: BaseException) -> None:
    """Keep the traceback of an error as text. Frames keep all that their functions had (requests, batches),
    and the frames of Trio, below ours, keep the error: such a cycle waits for the garbage collector."""
    each: BaseException | None = error
    while each is not None:
        each.add_note("in a thread:\n" + "".join(traceback.format_tb(each.__traceback__)))
        each.__traceback__ = None
        each = each.__cause__ or each.__context__


def limiter(kind: str) -> trio.CapacityLimiter:
    try:
        limiters = _limiters.get()
    except LookupError:
        limiters = {name: trio.CapacityLimiter(count) for name, count in THREADS.items()}
        _limiters.set(limiters)
    return limiters[kind]


def at_work_by_kind() -> dict[str, int]:
    return {kind: int(limiter(kind).borrowed_tokens) for kind in THREADS}


def at_work() -> int:
    """How many threads of all kinds are at work."""
    return sum(at_work_by_kind().values())
