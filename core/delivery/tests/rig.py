"""Sharing with all of its decisions, on an action log in memory and clocks that stand until they are moved.

What comes from disk is left out: messages have no bytes here. The action log keeps what was appended, and
how much of it is synced; `full` refuses all that is appended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from kumquat.core import clock
from kumquat.core.clock import SteadyClock
from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action, from_json, to_json
from kumquat.core.delivery.engine import Allowed, open_pull_log
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.pull_log import PullLog
from kumquat.core.delivery.sharing.service import Sharing
from kumquat.core.delivery.state import Group, Groups
from kumquat.core.errors import StorageError, WouldBlock

SID = 7


@dataclass
class Config:
    retry_backoff_ms: int = 1000
    retry_backoff_multiplier: float = 2.0
    retry_backoff_max_ms: int = 600_000
    delivery_count_limit: int = 16
    share_delivery_count_limit: int = 5
    lease_max_records: int = 500
    lease_steal_after_ms: int = 5000
    share_max_record_locks: int = 2000
    share_record_lock_duration_ms: int = 30_000


@dataclass(eq=False)
class Messages:
    """A subject, as far as hand-outs look at it."""

    id: int = SID
    name: str = "s"
    earliest: int = 0
    readable_end: int = 0
    deleted: bool = False
    waiters: set[Callable[[], None]] | None = None

    def produce(self, count: int) -> None:
        self.readable_end += count
        waiters, self.waiters = self.waiters, None
        for heard in waiters or ():
            heard()


@dataclass
class Frame:
    at: int
    """The time in its header, ms."""
    actions: list[Action]


def stored(done: Sequence[Action]) -> list[Action]:
    """As they come back from the log."""
    return [from_json(array) for array in json.loads(json.dumps([to_json(a) for a in done]))]


def replayed(frames: Sequence[Frame]) -> Groups:
    groups = Groups()
    for frame in frames:
        groups.now_ms = frame.at
        for action in stored(frame.actions):
            groups.apply(action)
    return groups


@dataclass
class ActionsInMemory:
    groups: Groups
    now_ms: Callable[[], int]
    frames: list[Frame] = field(default_factory=list)
    synced: int = 0
    full: bool = False
    seen: Callable[[list[Action]], None] = lambda done: None
    """Called with what is about to be applied."""

    def append_nowait(self, changes: Sequence[Action], *, urgent: bool = True) -> int:
        if self.full:
            raise StorageError("no space left on device")
        done = list(changes)
        self.groups.now_ms = self.now_ms()
        self.seen(done)
        for action in done:
            self.groups.apply(action)
        self.frames.append(Frame(self.groups.now_ms, done))
        if urgent:
            self.synced = len(self.frames)
        return len(self.frames)


class Rig:
    """Use `rig()`."""

    def __init__(self, config: Config) -> None:
        self.wall, self.monotonic = 1_800_000_000_000, 5_000
        self.config = config
        self.subject = Messages()
        self.members = 0

    def start(self, frames: list[Frame] | None = None) -> None:
        """A start of the broker, on what is left of the log."""
        groups = replayed(frames or [])
        steady = SteadyClock()
        steady.not_before(groups.now_ms)
        self.actions = ActionsInMemory(groups, steady, frames or [], len(frames or []))
        self.sharing = Sharing(
            cast("Any", self.actions), fake_log(), cast("Any", lambda name: self.config)
        )
        self.groups = groups

    def pass_time(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def seconds(self) -> float:
        return self.monotonic / 1000

    def now(self) -> int:
        """The time that groups live by."""
        return self.actions.now_ms()

    def append(self, *changes: Action) -> int:
        return self.sharing.append(changes)

    def make_group(self, gid: int, *, share: bool = False, sequence: int | None = 0) -> Group:
        made: list[Action] = [actions.Group(gid, f"g{gid}")]
        if share:
            made.append(actions.Emptied(gid, "share", "share", 0))
        if sequence is not None:
            made.append(actions.Share(gid, SID, sequence))
        self.sharing.append(made, {(gid, SID): Allowed.ALL})
        return self.groups.by_id[gid]

    def join(self, gid: int) -> PullLog:
        group = self.groups.by_id[gid]
        self.members += 1
        name = f"m{self.members}"
        opening = open_pull_log(self.groups, group, SID, name, share=group.is_share)
        fields = {
            "id": name,
            "generation": 1,
            "kind": "share" if group.is_share else "eager",
            "client_id": "c",
            "host": "h",
            "session_ms": 1,
            "rebalance_ms": 1,
            "holds": {SID: opening.slot},
        }
        self.append(opening, actions.Member(gid, fields))
        return self.groups.slots[SID][opening.slot][1]

    def progress(self, gid: int) -> Progress:
        return self.groups.by_id[gid].progress[SID]

    def give(self, gid: int, log: PullLog, most: int | None = None) -> bool:
        hand_outs = self.sharing.hand_outs_of(self.groups.by_id[gid], cast("Any", self.subject))
        return hand_outs.give(log, 1 << 20, most)


@contextmanager
def rig(config: Config | None = None) -> Iterator[Rig]:
    made = Rig(config or Config())
    with (
        mock.patch("trio.current_time", made.seconds),
        mock.patch.object(clock, "wall_clock_ms", made.wall_ms),
        mock.patch.object(clock, "_monotonic_ms", made.monotonic_ms),
    ):
        made.start()
        yield made


def fake_log() -> Any:
    options = SimpleNamespace(max_decompressed_bytes=1 << 20)
    return SimpleNamespace(log=SimpleNamespace(options=options), bounds_nowait=_blocks)


def _blocks(subject: Messages, sequence: int) -> tuple[int, int]:
    raise WouldBlock
