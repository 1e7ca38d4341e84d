"""The join point of the two logs: what SETTLES frames say is brought into the action log. Decisions only.

The message log holds the truth (core/logs/messages/settles.py). Each frame goes the same way: it is
written, with its messages; when both are durable, the action log gets Settle actions for its items and
Joined with the position where it ends. Frames are joined in the order of their positions, so one number
says how far that has come. After a start, the message log hands over the frames from there on, and
`catch_up` does the same for them, before anybody is served. An item is left out when its group or subject
is gone; one that is settled already changes nothing. So each frame counts once, whenever the broker is
killed.

Two more things follow from the number. The segments that hold frames above it must stay; as it is known
to be durable, not as it was last written (`keep_from`). And a start replays from it, so it must not fall
behind when there are no dead letters: `idle` moves it when a segment has gone by.

0 means that nothing was ever joined. Then there is no frame: the first start writes a position before
anybody can write one. (A log of an older version is not replayed from its beginning.)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kumquat.core.delivery.actions import Action, Joined, Settle
from kumquat.core.delivery.state import Groups
from kumquat.core.logs.messages.settles import Settled

log = logging.getLogger("kumquat.dead_letters")

_AT_ONCE = 5_000
"""Items in one append to the action log."""


class Frame(NamedTuple):
    """A SETTLES frame with its messages."""

    begin: int
    end: int
    items: list[Settled]


class ActionWriter(Protocol):
    """The action log, as it is before the broker runs."""

    def append(self, actions: list[Action]) -> int: ...
    def sync(self) -> None: ...


class Joiner:
    """How far the action log has followed; the SettleListener of the message log."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._replayed: list[list[Settled]] = []
        self._unjoined: deque[Frame] = deque()
        self._kept_from = groups.joined
        self.replay_from: int | None = groups.joined or None

    # --- the listener of the message log ---------------------------------------------------------

    def begin_replay(self) -> None:
        self._replayed = []

    def settled(self, items: list[Settled], end: int) -> None:
        self._replayed.append(items)

    def damaged(self, subject_id: int, position: int, length: int) -> None:
        log.error(
            "a frame (settles) of subject %d at position %d of the message log is damaged: what it settles "
            "may become a message once more",
            subject_id,
            position,
        )

    def keep_from(self) -> int:
        return self._kept_from

    # --- a start ---------------------------------------------------------------------------------

    def catch_up(self, writer: ActionWriter, end: int) -> None:
        """Blocks: the message log is replayed, and durable up to `end`. Join all that it handed over."""
        items = [item for found in self._replayed for item in found]
        self._replayed = []
        for begin in range(0, len(items), _AT_ONCE):
            actions = self.settles(items[begin : begin + _AT_ONCE])
            if actions:
                writer.append(actions)
        writer.append([Joined(end)])
        writer.sync()
        self._kept_from = end

    # --- running ---------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether there are frames that are not joined yet."""
        return bool(self._unjoined)

    def wrote(self, frame: Frame) -> None:
        assert not self._unjoined or self._unjoined[-1].end <= frame.begin
        self._unjoined.append(frame)

    def joinable(self, durable: int) -> list[Action]:
        """What the action log is to get, now that the message log is durable up to there; nothing:
        nothing."""
        items: list[Settled] = []
        end = 0
        for frame in self._unjoined:
            if frame.end > durable:
                break
            items += frame.items
            end = frame.end
        return [*self.settles(items), Joined(end)] if end else []

    def joined(self, position: int) -> None:
        """The action log has got it, up to this position of the message log."""
        while self._unjoined and self._unjoined[0].end <= position:
            self._unjoined.popleft()

    def joined_durably(self, position: int) -> None:
        """The action log has synced it."""
        self._kept_from = max(self._kept_from, position)

    def idle(self, durable: int, active_base: int) -> list[Action]:
        """What the action log is to get so that a start need not replay old segments."""
        if self._unjoined or self._groups.joined >= active_base:
            return []
        return [Joined(durable)]

    def settles(self, items: Iterable[Settled]) -> list[Action]:
        """One action for each group and subject; without those that are gone."""
        by_pair: dict[tuple[int, int], list[list[int]]] = {}
        for gid, subject_id, first, size in items:
            by_pair.setdefault((gid, subject_id), []).append([first, size])
        return [
            Settle(gid, subject_id, ranges)
            for (gid, subject_id), ranges in by_pair.items()
            if (group := self._groups.by_id.get(gid)) is not None and subject_id in group.progress
        ]
