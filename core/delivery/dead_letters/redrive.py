"""What people do with dead letters: look at them, send them back, purge them.

A letter that is sent back becomes a message again: of the subject it came from, or of another, with all
its headers (they are its history) and `qmq-redriven-ms`. It is a new message, so its attempts begin
again, and all groups of that subject get it. The frame that holds it names the letter as settled for the
internal group (open_letters.py, join.py): a broker that is killed sends it once. A purge is an action
alone.

Each of these reads a bounded part of the subject and says where to go on (`after`). What cannot be sent
is left open, and counted with the reason: its subject is gone, takes no message of its size, or is the
broker's own; or the message could not be read when it died. One redrive or purge of a subject runs at a
time.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from kumquat.core.delivery.actions import Settle
from kumquat.core.delivery.dead_letters.letters import redriven
from kumquat.core.delivery.dead_letters.names import is_own
from kumquat.core.delivery.dead_letters.open_letters import (
    INTERNAL_GROUP,
    Filter,
    Letter,
    count_open,
    letter_of,
    open_ranges,
    progress_of,
)
from kumquat.core.delivery.dead_letters.packing import Packer
from kumquat.core.delivery.dead_letters.reader import MessageReader
from kumquat.core.errors import InvalidRecord, KumquatError
from kumquat.core.records.rewrite import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.dead_letters.settling import Settling
    from kumquat.core.delivery.state import Progress
    from kumquat.core.logs.actions.service import ActionService
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.records.rewrite import Body

SCANNED_BYTES = 16 << 20
"""One call reads no more than about that."""
_AT_ONCE = 500
_LOADED_BYTES = 64 << 10
"""Read for one step of a scan, or a batch: what is asked for may be much less."""
_IN_A_TURN = 25
"""Letters that are looked at before others have their turn: some 2 ms."""


class NoLetters(KumquatError):
    """There is no subject of that name that dead letters were written to."""

    error_code = 3


class Busy(KumquatError):
    """A redrive or purge of the subject is under way."""

    error_code = 92


@dataclass(frozen=True, slots=True)
class LetterSubject:
    name: str
    open: int
    """Letters that are neither sent back nor purged; sequences that are no letter count too."""
    earliest: int
    end: int


@dataclass(frozen=True, slots=True)
class Page:
    letters: list[Letter]
    after: int | None
    """Where to go on; None: that was all."""
    unreadable: int
    """Letters that were passed over since the log cannot read them."""


@dataclass(slots=True)
class Outcome:
    """What became of letters, or would become of them in a dry run."""

    done: int = 0
    bytes: int = 0
    to: Counter[str] = field(default_factory=Counter)
    """How many go where."""
    refused: Counter[str] = field(default_factory=Counter)
    """Why letters stay where they are, and how many."""
    after: int | None = None
    """Where to go on; None: that was all."""


class Redrives:
    def __init__(
        self,
        actions: ActionService,
        log: MessageService,
        settling: Settling,
        append: Callable[[Sequence[Action]], int],
    ) -> None:
        self._actions = actions
        self._groups = actions.groups
        self._log = log
        self._settling = settling
        self._append = append
        self._reader = MessageReader(log)
        self._busy: set[int] = set()

    # --- looking ---------------------------------------------------------------------------------

    def subjects(self) -> list[LetterSubject]:
        """All that dead letters were written to, by name."""
        group = self._groups.by_name.get(INTERNAL_GROUP)
        by_id = self._log.subjects.by_id
        found = []
        for subject_id, progress in group.progress.items() if group is not None else ():
            subject = by_id.get(subject_id)
            if subject is not None:
                bounds = subject.earliest, subject.readable_end
                found.append(LetterSubject(subject.name, count_open(progress, *bounds), *bounds))
        return sorted(found, key=lambda each: each.name)

    async def page(self, subject: str, wanted: Filter, after: int = -1, limit: int = 100) -> Page:
        """Open letters behind that sequence; fewer than `limit` when it takes long to find them."""
        letters: list[Letter] = []
        source, progress = self._find(subject)
        scan = _Scan(self._reader, source, progress, wanted, after)
        while len(letters) < limit and (found := await scan.next(limit - len(letters))) is not None:
            letters += [letter for letter, _ in found]
        return Page(letters, scan.after, scan.unreadable)

    async def show(self, subject: str, sequence: int) -> Letter | None:
        """One letter, open or not; None: it is none, or is gone."""
        source, _ = self._find(subject)
        loaded = await self._reader.load(source, sequence, sequence + 1)
        self._reader.forget()
        return letter_of(subject, *loaded.messages[0]) if loaded.messages else None

    def _find(self, name: str) -> tuple[Subject, Progress]:
        subject = self._log.subjects.by_name.get(name)
        progress = progress_of(self._groups, subject.id) if subject is not None else None
        if subject is None or progress is None:
            raise NoLetters(f"no dead letters were written to a subject {name!r}")
        return subject, progress

    # --- sending back ----------------------------------------------------------------------------

    async def redrive(
        self,
        subject: str,
        wanted: Filter,
        to: str | None = None,
        rate: float | None = None,
        most: int | None = None,
        dry_run: bool = False,
        after: int = -1,
    ) -> Outcome:
        """Send open letters back to where they came from, or to another subject; at most `rate` a second.
        StorageError: those that were sent are counted nowhere, and are not open any more."""
        source, progress = self._find(subject)
        outcome, begun = Outcome(), trio.current_time()
        with self._alone(source, dry_run):
            await self._settling.finish()
            scan = _Scan(self._reader, source, progress, wanted, after)
            at_once = _AT_ONCE if rate is None else max(1, min(_AT_ONCE, int(rate / 10)))
            while most is None or outcome.done < most:
                room = at_once if most is None else min(at_once, most - outcome.done)
                found = await scan.next(room)
                if found is None or source.deleted:
                    break
                await self._send(source, found, to, outcome, dry_run)
                if rate is not None and not dry_run:
                    await trio.sleep_until(begun + outcome.done / rate)
            outcome.after = scan.after
        return outcome

    async def _send(
        self,
        source: Subject,
        found: list[tuple[Letter, Body]],
        to: str | None,
        outcome: Outcome,
        dry_run: bool,
    ) -> None:
        group = self._groups.by_name[INTERNAL_GROUP]
        history = redriven(self._actions.now_ms())
        packers: dict[Subject, Packer] = {}
        for letter, body in found:
            target = self._target(source, letter, to, outcome)
            if target is None:
                continue
            if target not in packers:
                most = target.config.max_message_bytes
                packers[target] = Packer(group.id, source.id, most)
            packer, sequence = packers[target], letter.record.offset
            packer.begin(sequence)
            packer.add(sequence, body, history)
            packer.end(sequence + 1)
        for target, packer in packers.items():
            if packer.too_large:
                reason = f"larger than max.message.bytes of {target.name}"
                outcome.refused[reason] += len(packer.too_large)
            for records, items, size, _ in packer.finish()[0]:
                if not dry_run:
                    self._settling.write(target, items, build(records, self._log.log.now_ms()))
                outcome.done += len(records)
                outcome.to[target.name] += len(records)
                outcome.bytes += size
        if not dry_run:
            await self._settling.finish()

    def _target(
        self, source: Subject, letter: Letter, to: str | None, outcome: Outcome
    ) -> Subject | None:
        name = letter.origin.subject if to is None else to
        target = self._log.subjects.by_name.get(name)
        if letter.empty:
            outcome.refused["the message could not be read: the letter has no value"] += 1
        elif is_own(name):
            outcome.refused[f"{name} is the broker's own subject: send it elsewhere (to)"] += 1
        elif target is None:
            outcome.refused[f"there is no subject {name}"] += 1
        elif target is source:
            outcome.refused["it would come back to where it is"] += 1
        else:
            return target
        return None

    # --- purging ---------------------------------------------------------------------------------

    async def purge(
        self,
        subject: str,
        wanted: Filter,
        most: int | None = None,
        dry_run: bool = False,
        after: int = -1,
    ) -> Outcome:
        """Open letters are no longer listed, nor sent back."""
        source, progress = self._find(subject)
        outcome = Outcome()
        with self._alone(source, dry_run):
            await self._settling.finish()
            gid = self._groups.by_name[INTERNAL_GROUP].id
            scan = _Scan(self._reader, source, progress, wanted, after)
            while most is None or outcome.done < most:
                room = _AT_ONCE if most is None else min(_AT_ONCE, most - outcome.done)
                found = await scan.next(room)
                if found is None or source.deleted:
                    break
                if not dry_run and found:
                    ranges = [[letter.record.offset, 1] for letter, _ in found]
                    position = self._append([Settle(gid, source.id, ranges)])
                    await self._actions.wait_synced(position)
                outcome.done += len(found)
                outcome.bytes += sum(len(b.fields) + len(b.headers) for _, b in found)
            outcome.after = scan.after
        return outcome

    @contextmanager
    def _alone(self, source: Subject, dry_run: bool) -> Iterator[None]:
        """Two at a time would send the same letters."""
        if dry_run:
            yield
            return
        if source.id in self._busy:
            raise Busy(f"a redrive or purge of {source.name} is under way")
        self._busy.add(source.id)
        try:
            yield
        finally:
            self._busy.discard(source.id)


class _Scan:
    """Goes through the open letters of a subject, by sequence."""

    def __init__(
        self,
        reader: MessageReader,
        subject: Subject,
        progress: Progress,
        wanted: Filter,
        after: int,
    ) -> None:
        self._reader = reader
        self._subject = subject
        self._progress = progress
        self._wanted = wanted
        self._at = after + 1
        self._end = subject.readable_end
        self._left = SCANNED_BYTES
        self._ready: list[tuple[Letter, Body]] = []
        self._loaded_until = self._at
        self._done = False
        self.unreadable = 0

    @property
    def after(self) -> int | None:
        """What was given, or passed over, so far; None: there is no more."""
        return None if self._done and not self._ready else self._at - 1

    async def next(self, most: int) -> list[tuple[Letter, Body]] | None:
        """Some letters, perhaps none; None: there are no more, or enough was read."""
        if not self._ready and not self._done:
            if self._left <= 0:
                return None
            await self._load()
        if not self._ready:
            return None if self._done else []
        found, self._ready = self._ready[:most], self._ready[most:]
        self._at = found[-1][0].record.offset + 1 if self._ready else self._loaded_until
        return found

    async def _load(self) -> None:
        part = next(
            open_ranges(self._progress, max(self._at, self._subject.earliest), self._end), None
        )
        if part is None:
            self._done = True
            return
        first, end = part
        loaded = await self._reader.load(self._subject, first, end, _LOADED_BYTES)
        self._reader.forget()
        self.unreadable += sum(each.end - each.first for each in loaded.unreadable)
        for number, (sequence, body) in enumerate(loaded.messages, 1):
            if number % _IN_A_TURN == 0:
                await trio.lowlevel.checkpoint()
            try:
                letter = letter_of(self._subject.name, sequence, body)
            except InvalidRecord:
                self.unreadable += 1
                continue
            if letter is not None and self._wanted.fits(letter):
                self._ready.append((letter, body))
        self._loaded_until = loaded.until
        if not self._ready:
            self._at = loaded.until
        self._left -= max(1, loaded.size)
        await trio.lowlevel.checkpoint()
