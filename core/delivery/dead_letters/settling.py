"""Writes messages that settle others, and sees to it that both logs know (join.py).

    write    SETTLES and MESSAGES in one write to the message log; StorageError: nothing has happened
    finish   waits until they are durable, then appends what they settle to the action log

Whoever finishes joins all that is durable, also what another has written. If the action log cannot be
written, the frames stay `unfinished`, and `finish` is to be called again. Nothing may be chosen by what is
settled until then: the action log does not know it yet.

An observer, if there is one, is told of each frame when both logs know it.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kumquat.core.delivery.actions import Action, Joined
from kumquat.core.delivery.dead_letters.join import Frame, Joiner
from kumquat.core.records.batch import read_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kumquat.core.errors import KumquatError
    from kumquat.core.logs.actions.service import ActionService
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.settles import Settled
    from kumquat.core.logs.messages.subject import Subject


class Settlement(NamedTuple):
    """Messages that settle others."""

    subject: Subject
    """Where they are."""
    first: int
    records: int
    items: list[Settled]
    end: int
    """The position behind them."""


class SettleObserver(Protocol):
    """Who is told what was settled: the history of messages. It must not raise, and changes nothing."""

    def settled(self, settlement: Settlement) -> None: ...


class Settling:
    def __init__(
        self,
        log: MessageService,
        actions: ActionService,
        joiner: Joiner,
        append: Callable[[Sequence[Action]], int],
    ) -> None:
        """`append`: appends actions, and tells those that have to know; gives the position to be synced.
        StorageError: nothing has happened."""
        self._log = log
        self._actions = actions
        self._joiner = joiner
        self._append = append
        self._written = 0
        self.observer: SettleObserver | None = None
        """None while nobody's history is recorded."""
        self._untold: deque[Settlement] = deque()

    @property
    def unfinished(self) -> bool:
        return self._joiner.waits

    def write(self, subject: Subject, items: list[Settled], batch: bytearray) -> None:
        begin = self._log.log.written_end
        appended = self._log.settle_nowait(subject, items, batch)
        self._log.write_nowait()
        self._joiner.wrote(Frame(begin, appended.end, items))
        self._written = appended.end
        if self.observer is not None:
            records, base = read_head(batch).record_count, appended.base_sequence
            self._untold.append(Settlement(subject, base, records, items, appended.end))

    def settle_bare(self, items: list[Settled]) -> None:
        """Settle what no message stands for: the action log alone says so."""
        actions = self._joiner.settles(items)
        if actions:
            self._append(actions)

    async def finish(self) -> None:
        """Until all that was written is known to both logs."""
        while self._joiner.waits:
            await self._log.wait_synced(self._written)
            self._join()

    def keep_up(self) -> None:
        """Move the position up to which the logs are joined, when a segment has gone by."""
        message_log = self._log.log
        moved = self._joiner.idle(message_log.synced_end, message_log.state.active.base)
        if moved:
            self._note(moved)

    def _join(self) -> None:
        actions = self._joiner.joinable(self._log.log.synced_end)
        if actions:
            self._note(actions)

    def _note(self, actions: list[Action]) -> None:
        joined = actions[-1]
        assert isinstance(joined, Joined)
        position = self._append(actions)
        self._joiner.joined(joined.position)
        while self._untold and self._untold[0].end <= joined.position:
            settlement = self._untold.popleft()
            if self.observer is not None:
                self.observer.settled(settlement)
        self._actions.call_when_synced(position, partial(self._durable, joined.position))

    def _durable(self, position: int, error: KumquatError | None) -> None:
        if error is None:
            self._joiner.joined_durably(position)
