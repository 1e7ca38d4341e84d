"""Work on many things for one request, without holding up other clients.

    turn = Turn()
    for asked in request.topics:
        ...
        if turn.over:
            await turn.give_way()

What was true before `give_way` may be wrong after it. So a handler uses shared state within one turn, or
looks at it again.
"""

from __future__ import annotations

from time import perf_counter

import trio

TURN_SECONDS = 0.001


class Turn:
    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = perf_counter() + TURN_SECONDS

    @property
    def over(self) -> bool:
        return perf_counter() > self._ends

    async def give_way(self) -> None:
        await trio.lowlevel.checkpoint()
        self._ends = perf_counter() + TURN_SECONDS
