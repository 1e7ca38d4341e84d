"""Dead letters in a running broker: the task that writes them, and what is done with them.

A message is *doomed* when the action log says so (Doom). It then waits here, whatever happens, until its
dead letter is durable: the task reads the message, builds the letter (letters.py), writes it to the
letters' subject together with a frame that names the message as settled, and, when that is durable,
settles it in the action log (settling.py). A broker that is killed in between finds one or the other at
its start (join.py).

Many are written together: a batch has up to 500 letters, and one sync serves all that a round has
written, of all groups and subjects. What fails is left alone for a while and does not hold up the rest
(backlog.py); what cannot be read because the disk says so now is tried again. Nothing is given up.

What people do with dead letters is in redrive.py (`redrives`); both share the settling.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from kumquat.core.delivery.dead_letters.backlog import FIRST_PAUSE, Backlog, Failure, again
from kumquat.core.delivery.dead_letters.expiry import dooms, pending
from kumquat.core.delivery.dead_letters.letters import Address, address, headers_of, without_body
from kumquat.core.delivery.dead_letters.names import OWN, letters_name
from kumquat.core.delivery.dead_letters.open_letters import adopt
from kumquat.core.delivery.dead_letters.packing import Packer
from kumquat.core.delivery.dead_letters.reader import READ_BYTES, Loaded, MessageReader
from kumquat.core.delivery.dead_letters.redrive import Redrives
from kumquat.core.delivery.dead_letters.settling import Settling
from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.records.rewrite import build

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.dead_letters.backlog import Pair
    from kumquat.core.delivery.dead_letters.join import Joiner
    from kumquat.core.delivery.progress import Doomed
    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.actions.service import ActionService
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject

log = logging.getLogger("kumquat.dead_letters")

MORE_BYTES = 64 << 10
"""The letters' subject takes messages this much larger than those of the subject they come from."""
_ROUND_BYTES = 16 << 20
_IN_A_ROW = 50
"""Ranges of messages, before it is the turn of other tasks."""
_KEEP_UP_SECONDS = 5.0
"""How long what a start has to replay may grow beyond the active segment."""
_EXPIRY_SECONDS = 10.0
"""How long retention waits for the next dead letter to be written."""
_EXPIRED_AT_ONCE = 1_000
"""Ranges of messages: some 20 ms."""


class NotMade(KumquatError):
    """The subject for dead letters cannot be made."""


class LettersConfig(Protocol):
    @property
    def dead_letter_subject(self) -> str: ...


@dataclass(frozen=True, slots=True)
class DeadLetterStatistics:
    waiting: int
    """Messages whose dead letters are not durable yet."""
    written: int
    unreadable: int
    """Of those that were written: without a value, since the message could not be read."""
    failing: dict[tuple[str, str], str]
    """Why dead letters cannot be written at the moment, by group and subject."""
    reasons: dict[str, int]
    """Those that were written, by why they are dead letters."""


class DeadLetters:
    def __init__(
        self,
        actions: ActionService,
        log: MessageService,
        joiner: Joiner,
        *,
        append: Callable[[Sequence[Action]], int],
        config: Callable[[str], LettersConfig],
        make: Callable[[str, Subject], Awaitable[Subject]],
        wait_doomed: Callable[[], Awaitable[Iterable[Pair]]],
    ) -> None:
        """`append`: see Settling. `config`: by the name of a group. `make`: makes the subject of that
        name for dead letters of another, or gives it if it exists; NotMade. `wait_doomed`: until messages
        are doomed; gives groups and subjects."""
        self._actions = actions
        self._groups = actions.groups
        self._log = log
        self.settling = Settling(log, actions, joiner, append)
        self.redrives = Redrives(actions, log, self.settling, append)
        self.reader = MessageReader(log)
        self._config = config
        self._make = make
        self._wait_doomed = wait_doomed
        self._append = append
        self._backlog = Backlog(self._groups)
        self._news = trio.Event()
        self._round_ended = trio.Event()
        self._written = self._unreadable = 0
        self._reasons = Counter[str]()
        self._stopped: Failure | None = None
        """Why nothing at all can be written."""

    # --- the task --------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            self._backlog.find_all()
            task_status.started()
            while True:
                self._news = trio.Event()
                try:
                    busy = await self._round()
                    self._round_ended.set()
                    self._round_ended = trio.Event()
                    self.settling.keep_up()
                except Exception as error:  # whatever it is, it must not stop the broker
                    await self._pause(error)
                    continue
                self._resumed()
                if not busy:
                    await self._wait()

    async def _listen(self) -> None:
        while True:
            self._backlog.add(await self._wait_doomed())
            self._news.set()

    async def _wait(self) -> None:
        """Until there is something to do."""
        due = self._backlog.next_due()
        pause = _KEEP_UP_SECONDS if due is None else max(0.0, due - trio.current_time())
        with trio.move_on_after(min(pause, _KEEP_UP_SECONDS)):
            await self._news.wait()

    async def _pause(self, error: Exception) -> None:
        """The logs themselves fail."""
        reason = _text(error)
        if self._stopped is None or self._stopped.reason != reason:
            trace = None if _is_foreseen(error) else error
            log.error("no dead letters can be written: %s", reason, exc_info=trace)
        self._stopped = again(self._stopped, reason, trio.current_time())
        await trio.sleep_until(self._stopped.due)

    def _resumed(self) -> None:
        if self._stopped is not None:
            log.warning("dead letters can be written again")
        self._stopped = None

    async def _round(self) -> bool:
        """Write some of each group and subject, and settle them; False: there was nothing to do.
        StorageError: the logs do not take what was written."""
        await self.settling.finish()
        pairs, size = self._backlog.ready(trio.current_time()), 0
        for pair in pairs:
            await self._log.wait_produce_unblocked()
            try:
                size += await self._write(pair)
                self._backlog.worked(pair)
            except Exception as error:  # whatever it is, it must not hold up the others
                self._backlog.failed(pair, _text(error), trio.current_time())
            await trio.lowlevel.checkpoint()
            if size > _ROUND_BYTES:
                break
        self.reader.forget()
        await self.settling.finish()
        return bool(pairs)

    # --- a group and a subject -------------------------------------------------------------------

    async def _write(self, pair: Pair) -> int:
        """Write the next dead letters of a pair; gives their size. The rest of it waits for the next
        round."""
        group, subject = self._groups.by_id.get(pair[0]), self._log.subjects.by_id.get(pair[1])
        if group is None:
            return 0
        if subject is None:
            raise NotMade("the subject of the messages is deleted")
        target = await self._target(group, subject)
        packer = Packer(*pair, target.config.max_message_bytes)
        where, size = address(subject.name, group.name), 0
        for number, doomed in enumerate(self._backlog.pick(pair, trio.current_time())):
            if number % _IN_A_ROW == 0:
                await trio.lowlevel.checkpoint()
            loaded = await self.reader.load(subject, doomed.first, doomed.end)
            self._pack(packer, where, doomed, loaded)
            size += loaded.size
            if size > READ_BYTES:
                break
        batches, bare = packer.finish()
        total = 0
        for records, items, size, reasons in batches:
            if target.deleted or not self._backlog.holds(pair, items):
                return total
            self.settling.write(target, items, build(records, self._log.log.now_ms()))
            self._written += len(records)
            self._reasons += reasons
            for item in items:
                self._backlog.unstuck(pair, item.first, item.first + item.size)
            total += size
            await trio.lowlevel.checkpoint()
        if bare:
            self.settling.settle_bare(bare)
        for sequence, size in packer.too_large:
            most = target.config.max_message_bytes
            reason = f"{size} bytes, max.message.bytes of {target.name} is {most}"
            self._backlog.stuck(pair, sequence, reason, trio.current_time())
        return total

    async def _target(self, group: Group, subject: Subject) -> Subject:
        name = letters_name(subject.name, group.name, self._config(group.name).dead_letter_subject)
        if name == subject.name:  # they would be delivered, and die, for ever
            raise NotMade(
                f"dead letters of {name} would come back to it: change errors.deadletterqueue.topic.name "
                f"of group {group.name}"
            )
        if name in OWN:
            raise NotMade(
                f"{name} is the broker's own subject: change errors.deadletterqueue.topic.name of group "
                f"{group.name}"
            )
        found = self._log.subjects.by_name.get(name)
        if found is None:
            found = await self._make(name, subject)
        if found is subject:  # it would fail, die and come back, each time a little larger
            raise NotMade(
                f"{name} is the subject of the messages itself: set errors.deadletterqueue.topic.name of "
                "the group to another name"
            )
        adopted = adopt(self._groups, found.id)
        if adopted:
            await self._actions.wait_synced(self._append(adopted))
        return found

    def _pack(self, packer: Packer, where: Address, doomed: Doomed, loaded: Loaded) -> None:
        """All letters in the order of their messages: what a batch settles is a range."""
        letters = [(sequence, body, doomed) for sequence, body in loaded.messages]
        for first, end, why, gone in loaded.unreadable:
            body, told = without_body(doomed, why, gone, self._actions.now_ms())
            letters += [(sequence, body, told) for sequence in range(first, end)]
            self._unreadable += end - first
        if loaded.unreadable:
            letters.sort(key=lambda letter: letter[0])
        packer.begin(doomed.first)
        for sequence, body, told in letters:
            packer.add(sequence, body, headers_of(where, sequence, told), told.reason)
        packer.end(loaded.until)

    async def wait_written(self, groups: Iterable[str], seconds: float) -> None:
        """Until nothing of these groups is doomed, or the time is up. More may be doomed afterwards."""
        with trio.move_on_after(seconds):
            for number, name in enumerate(groups, 1):
                if number % _IN_A_ROW == 0:
                    await trio.lowlevel.checkpoint()
                while (group := self._groups.by_name.get(name)) is not None and group.dying:
                    await self._round_ended.wait()

    # --- retention -------------------------------------------------------------------------------

    async def expire(self, due: Sequence[tuple[Subject, int]]) -> None:
        """Retention is about to delete all below these sequences. What failed and was to be delivered
        again becomes dead letters first (expiry.py). It waits for them as long as some are written, and
        not for ever: a disk that is full needs its retention. The rest become letters without a value."""
        earliest = {subject.id: sequence for subject, sequence in due}
        waits = True
        while await self._doom_some(earliest) or waits:
            waits = waits and await self._fewer_pending(earliest)

    async def _doom_some(self, earliest: Mapping[int, int]) -> bool:
        """False: there is nothing to doom, or that cannot be written."""
        await trio.lowlevel.checkpoint()
        reason = ""
        with trio.move_on_after(_EXPIRY_SECONDS):
            while doomed := dooms(self._groups, earliest, _EXPIRED_AT_ONCE):
                try:
                    self._append(doomed)
                    return True
                except StorageError as error:
                    reason = str(error)
                    await trio.sleep(FIRST_PAUSE)
            return False
        log.error(
            "messages that wait to be delivered again are deleted by retention without a dead letter: %s",
            reason,
        )
        return False

    async def _fewer_pending(self, earliest: Mapping[int, int]) -> bool:
        """Wait until some letters are written; False: there are none to be written, or they cannot be."""
        before = pending(self._groups, earliest)
        if before:
            with trio.move_on_after(_EXPIRY_SECONDS):
                while pending(self._groups, earliest) >= before:
                    await self._round_ended.wait()
                return True
        return False

    # --- numbers ---------------------------------------------------------------------------------

    def statistics(self) -> DeadLetterStatistics:
        subjects = self._log.subjects.by_id
        failing = {
            (
                group,
                subjects[subject_id].name if subject_id in subjects else f"subject {subject_id}",
            ): reason
            for (group, subject_id), reason in self._backlog.reasons().items()
        }
        if self._stopped is not None:
            failing["", ""] = self._stopped.reason
        return DeadLetterStatistics(
            self._backlog.waiting(), self._written, self._unreadable, failing, dict(self._reasons)
        )


def _text(error: Exception) -> str:
    """An error that was not foreseen is told with its name."""
    return str(error) if _is_foreseen(error) else f"{type(error).__name__}: {error}"


def _is_foreseen(error: Exception) -> bool:
    return isinstance(error, (KumquatError, OSError))
