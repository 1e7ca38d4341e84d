"""Drives a synchronous action log over the fake disk, and keeps book of what it promised.

The model is the list of frames, each a list of actions: a log that was opened again must be what some
prefix of them makes, at least as long as the prefix that was promised (synced), with the leap of an
unclean start on top. Beside it stands every pull offset that was ever handed out, in any life, with the
message that it named.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.actions import Action, from_json, to_json
from kumquat.core.delivery.pull_log import JUMP
from kumquat.core.delivery.ranges import Range
from kumquat.core.delivery.state import Group, Groups, PullLog
from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.actions.recovery import open_action_log, repairs
from kumquat.core.logs.disk.commit import Round
from kumquat.core.logs.tests.power import FakeFiles

DATA = Path("/data")
FOLDER = DATA / "actions"


def stored(done: Iterable[Action]) -> list[Action]:
    """As they come back from the log: no object is shared with those that were written."""
    return [from_json(array) for array in json.loads(json.dumps([to_json(a) for a in done]))]


@dataclass
class Book:
    """What the world outside knows."""

    frames: list[list[Action]] = field(default_factory=list)
    promised: int = 0
    """How many frames are durable for good."""
    named: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    """Subject, slot, pull sequence → group and sequence."""
    starting: bool = False
    """A log is being opened: what it writes to say so is not in `frames` yet."""

    def state(self, count: int) -> Groups:
        groups = Groups()
        for frame in self.frames[:count]:
            for action in frame:
                groups.apply(action)
        return groups


TIMED = (actions.Committed, actions.Emptied, actions.Silence)
"""They tell the time of a frame, which the book does not keep, or come with a start: see
test_action_times.py."""


def timeless(told: Iterable[Action]) -> Iterator[tuple[Any, ...]]:
    """What is stored of actions, without the times of deliveries: the book has none. Neighbours that differ
    in nothing else are one."""
    before: actions.Again | None = None
    for action in told:
        if isinstance(action, actions.Again):
            action = action._replace(since=0)
            if before is not None and _neighbour(before) == action[:3] + action[4:]:
                before = before._replace(size=before.size + action.size)
                continue
        if before is not None:
            yield to_json(before)
            before = None
        if isinstance(action, actions.Again):
            before = action
        elif isinstance(action, actions.Log):
            yield to_json(action._replace(leases=[[*lease[:4], 0, 0] for lease in action.leases]))
        else:
            yield to_json(action)
    if before is not None:
        yield to_json(before)


def _neighbour(before: actions.Again) -> tuple[int, ...]:
    """What an action is, without its size, if it is about the messages behind."""
    return (before.gid, before.subject_id, before.first + before.size, before.attempt, 0)


def shape(groups: Groups) -> dict[int, object]:
    """All that counts of the groups, to be compared."""
    made: dict[int, object] = {
        gid: json.dumps(list(timeless(a for a in groups.snapshot(group) if type(a) not in TIMED)))
        for gid, group in groups.by_id.items()
    }
    made[0] = [
        groups.floor,
        {subject_id: numbers.given for subject_id, numbers in groups.numbers.items()},
    ]
    return made


def start_of(groups: Groups, damaged: int) -> list[Action]:
    """What a start writes down, applied."""
    clean = groups.clean and not damaged
    start = [actions.Jump(0 if clean else JUMP * (1 + damaged)), *repairs(groups)]
    for action in start:
        groups.apply(action)
    return start


class ActionDriver:
    def __init__(
        self, files: FakeFiles | None = None, book: Book | None = None, segment_bytes: int = 1500
    ) -> None:
        self.files = files or FakeFiles(DATA)
        self.book = book or Book()
        self.segment_bytes = segment_bytes
        self.now = 1_700_000_000_000
        self.errors: list[str] = []
        self._next_member = 0
        self.start()

    def start(self) -> None:
        """Open the log as a new process does, and hold it against the book."""
        self.before = len(self.book.frames)
        self.interrupted, self.book.starting = self.book.starting, True
        with told_by("kumquat.actions") as self.errors:
            self.log = open_action_log(self.files, DATA, self.clock, self.segment_bytes, 4096)
        self.log.rolls.clock = lambda: self.now / 1000
        self.groups = self.log.groups

    def found(self, damaged: int = 0) -> int:
        """How many of the book's frames the log has; the book goes back to them. It must be a prefix
        that holds what was promised."""
        book, opened = self.book, shape(self.groups)
        for count in range(len(book.frames), book.promised - 1, -1):
            groups, starts = book.state(count), []
            for _ in range(2 if self.interrupted else 1):
                starts.append(start_of(groups, damaged))
                if shape(groups) == opened:
                    book.frames[count:] = starts
                    book.promised = len(book.frames)
                    book.starting = False
                    return count
        raise AssertionError(
            f"the log is none of the prefixes from {book.promised} to {len(book.frames)}: {opened}"
        )

    def clock(self) -> int:
        self.now += 1
        return self.now

    # --- writing -----------------------------------------------------------------------------------

    def do(self, *done: Action) -> int:
        """Append, and remember; what it promises counts when the log says so."""
        self.book.frames.append(stored(done))
        count = len(self.book.frames)
        try:
            end = self.log.append(list(done))
        except StorageError:
            self.book.frames.pop()
            raise

        def synced(error: KumquatError | None) -> None:
            if error is None:
                self.book.promised = max(self.book.promised, count)

        self.log.call_when_synced(end, synced)
        return end

    def group(self, name: str) -> Group:
        if name not in self.groups.by_name:
            self.do(actions.Group(self.groups.next_id, name))
        return self.groups.by_name[name]

    def join(self, name: str, subject_id: int) -> PullLog:
        group = self.group(name)
        self._next_member += 1
        member_id = f"{name}-{self.now}-{self._next_member}"
        begun = []
        if subject_id not in group.progress or not group.progress[subject_id].shared:
            begun.append(actions.Share(group.id, subject_id, 0))
        opened = engine.open_pull_log(self.groups, group, subject_id, member_id)
        fields = {
            "id": member_id,
            "generation": 1,
            "kind": "eager",
            "client_id": "c",
            "host": "h",
            "session_ms": 1,
            "rebalance_ms": 1,
            "holds": {subject_id: opened.slot},
        }
        self.do(*begun, opened, actions.Member(group.id, fields))
        return self.groups.slots[subject_id][opened.slot][1]

    def leave(self, group: Group, member_id: str) -> None:
        released = [
            actions.Release(group.id, subject_id, log.slot)
            for subject_id, progress in group.progress.items()
            for log in progress.pull_logs.values()
            if log.member_id == member_id
        ]
        self.do(*released, actions.Left(group.id, member_id))

    def pull(self, group: Group, subject_id: int, log: PullLog, count: int) -> None:
        """Hand out: the client has it at once, synced or not."""
        progress = group.progress[subject_id]
        again = list(progress.redelivery.parts(count, 8))
        ranges = again or [Range(progress.cursor, count, 1)]
        pull = log.next
        self.do(engine.pull_action(group.id, subject_id, log, ranges))
        for part in ranges:
            for sequence in range(part.first, part.end):
                key, named = (subject_id, log.slot, pull), (group.id, sequence)
                assert self.book.named.setdefault(key, named) == named, "two messages, one offset"
                pull += 1

    def ack(self, group: Group, subject_id: int, log: PullLog, pull: int) -> None:
        action = engine.ack(group.id, subject_id, log, pull)
        if action is not None:
            self.do(action)

    # --- rounds ------------------------------------------------------------------------------------

    def sync(self) -> None:
        job = self.log.begin_sync()
        if job is not None:
            self.run_job(job)

    def run_job(self, job: Round) -> None:
        try:
            job.run()
        except OSError as error:
            self.log.finish_sync(job, error)
        else:
            self.log.finish_sync(job)

    def tidy(self) -> None:
        for segment in self.log.take_obsolete():
            self.files.unlink(segment.path)

    def settle(self) -> None:
        while self.log.snapshot_step(3):
            pass
        while self.log.unsynced_bytes and self.log.fenced is None:
            self.sync()

    def stop(self) -> None:
        self.book.frames.append([actions.Stopped()])
        self.log.close()
        self.book.promised = len(self.book.frames)

    def goes_on(self) -> None:
        """Everyone is handed something, under offsets that nobody has seen; and that is kept too."""
        for subject_id, logs in list(self.groups.slots.items()):
            for group, log in list(logs.values()):
                self.pull(group, subject_id, log, 2)
        for subject_id in (1, 2):
            log = self.join("g1", subject_id)
            self.pull(self.groups.by_name["g1"], subject_id, log, 3)
        self.settle()
        self.start()
        assert self.found() == self.before


class ActionScenario:
    """A mixed life of an action log, drawn from a seed."""

    def __init__(self, seed: int, driver: ActionDriver | None = None) -> None:
        self.rng = Random(seed)
        self.driver = driver or ActionDriver()
        self.actions = [
            (8, self.join),
            (3, self.leave),
            (20, self.pull),
            (14, self.ack),
            (6, self.commit),
            (2, self.expire),
            (1, self.forget),
            (1, self.subject_gone),
            (18, self.driver.sync),
            (4, self.during_sync),
            (10, self.snapshot),
            (3, self.driver.tidy),
            (2, self.restart),
            (1, self.stop_and_start),
        ]

    def run(self, count: int) -> None:
        assert self.driver.found() == 0
        self.join()
        weights = [weight for weight, _ in self.actions]
        for _, action in self.rng.choices(self.actions, weights, k=count):
            action()
        self.driver.settle()

    def _log(self) -> tuple[Group, int, PullLog] | None:
        logs = [
            (group, subject_id, log)
            for subject_id, logs in self.driver.groups.slots.items()
            for group, log in logs.values()
        ]
        return self.rng.choice(logs) if logs else None

    def join(self) -> None:
        self.driver.join(f"g{self.rng.randrange(4)}", self.rng.randrange(1, 3))

    def leave(self) -> None:
        if (picked := self._log()) is not None:
            self.driver.leave(picked[0], picked[2].member_id)

    def pull(self) -> None:
        if (picked := self._log()) is not None:
            self.driver.pull(*picked, self.rng.randrange(1, 6))

    def ack(self) -> None:
        if (picked := self._log()) is not None and picked[2].leases:
            log = picked[2]
            self.driver.ack(*picked, self.rng.randint(log.position, log.leases[-1].end))

    def commit(self) -> None:
        group = self.driver.group(f"g{self.rng.randrange(8)}")
        at = self.rng.randrange(1000)
        self.driver.do(actions.Commit(group.id, self.rng.randrange(3, 9), at, -1, "x" * at))

    def expire(self) -> None:
        if (picked := self._log()) is not None:
            group, subject_id, _ = picked
            at = self.rng.randint(0, group.progress[subject_id].cursor)
            action = engine.overtaken(group.id, subject_id, group.progress[subject_id], at)
            if action is not None:
                self.driver.do(action)

    def forget(self) -> None:
        name = f"g{self.rng.randrange(8)}"
        if name in self.driver.groups.by_name:
            self.driver.do(actions.Forget(self.driver.groups.by_name[name].id))

    def subject_gone(self) -> None:
        self.driver.do(actions.Gone(self.rng.randrange(3, 9)))

    def during_sync(self) -> None:
        job = self.driver.log.begin_sync()
        self.pull()
        self.ack()
        if job is not None:
            self.driver.run_job(job)

    def snapshot(self) -> None:
        self.driver.log.snapshot_step(self.rng.randrange(1, 4))

    def restart(self) -> None:
        """The process is killed: what it wrote stays."""
        self.driver.start()
        assert self.driver.found() == self.driver.before, "a kill lost something that was written"

    def stop_and_start(self) -> None:
        self.driver.stop()
        self.driver.start()
        assert self.driver.found() == self.driver.before
        assert self.driver.book.frames[-1][0] == actions.Jump(0), "a clean stop was not noticed"


@contextmanager
def told_by(logger_name: str) -> Iterator[list[str]]:
    """What is logged at level ERROR or above."""
    told: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    ear = Ear(logging.ERROR)
    logger = logging.getLogger(logger_name)
    logger.addHandler(ear)
    try:
        yield told
    finally:
        logger.removeHandler(ear)


def open_again(driver: ActionDriver, files: FakeFiles, book: Book) -> ActionDriver:
    """A log on another disk, with a book of its own."""
    return ActionDriver(files, book, driver.segment_bytes)
