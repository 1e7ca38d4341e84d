"""Making, changing and deleting subjects: the log first, then SQL, then what is derived from both.

The message log decides which subjects exist; SQL (the registry) keeps their configs. So:
- A creation is written to the log and synced, then stored in SQL, and only then answered. If SQL fails, the
  subject exists with default configs, and the answer is an error that says so.
- A deletion goes to the log first too. If SQL fails, the subject is deleted all the same; the next start
  drops what SQL still has.
- Once begun, none of these is cancelled half-way.

Configs that the log acts on are put into the subject's `SubjectConfig`, at start and at each change.
Subjects for which all of them are the defaults share one object.

Names are checked as Kafka does: 1 to 249 of the characters a-z A-Z 0-9 . _ - , and neither "." nor "..".
Two names that differ only in '.' and '_' collide (the names of their metrics would be the same): the second
is refused.

`__consumer_offsets` is made when a client first asks for a group's coordinator, as in Kafka: tools and
subscriptions by pattern expect it. It is marked as internal and stays empty, and nobody can write to it:
offsets are in the action log. `__kumquat_retry` is internal and empty too, and is made before clients can
connect. Records that are sent to it are commands (core/delivery/commands.py). It can be neither changed nor
deleted. `__kumquat_actions` is the history of messages (gateway/history): internal, written by the broker
alone, made when the first subject has `history` on. Its retention can be changed, it cannot be deleted.

The keeper knows which subjects have their history recorded, and tells `watch_history` when there is a first
one, or none any more.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from kumquat.core.delivery.commands import TOPIC as RETRY
from kumquat.core.logs.messages.subject import SubjectConfig
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused
from kumquat.gateway.topics.table import ACTIONS, INTERNAL, OFFSETS, TopicTable
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.meta.definitions import effective
from kumquat.meta.errors import MetaError, StoreError
from kumquat.meta.values import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.wheel.service import DelayService
    from kumquat.gateway.net.dispatch import Answerable
    from kumquat.meta.definitions import SubjectDefaults
    from kumquat.meta.registry import Registry

MAX_NAME = 249
ACTIONS_MS, ACTIONS_BYTES = 24 * 3_600_000, 256 << 20
"""How much of the history is kept, unless its subject says otherwise."""
AT_A_TIME = 100
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)

T = TypeVar("T")

logger = logging.getLogger(__name__)


def check_name(name: str) -> None:
    """Raises Refused unless a subject may have this name."""
    if not name:
        reason = "a topic name cannot be empty"
    elif name in (".", ".."):
        reason = f"a topic cannot be named {name!r}"
    elif len(name) > MAX_NAME:
        reason = f"a topic name has at most {MAX_NAME} characters, this one has {len(name)}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"the topic name {name!r} has characters other than a-z, A-Z, 0-9, '.', '_', '-'"
    else:
        return
    raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


class SubjectListener(Protocol):
    """Who has to know which subjects there are: the groups."""

    async def prepare_added(self, subject: Subject) -> None:
        """Do what `subject_added` needs and what would hold up the event loop."""

    def subject_added(self, subject: Subject) -> None: ...

    def subject_removed(self, subject: Subject) -> None: ...


class SubjectKeeper:
    def __init__(
        self,
        log: MessageService,
        registry: Registry,
        defaults: SubjectDefaults,
        groups: SubjectListener,
        delay: DelayService,
    ) -> None:
        self._log = log
        self._registry = registry
        self._groups = groups
        self._delay = delay
        self.defaults = defaults
        self.table = TopicTable()
        self._by_metric_name: dict[str, str] = {}
        self.keys_changed: Callable[[Subject], None] = lambda subject: None
        """Is told when `index.keys` of a subject was set or reset."""
        self._internal = [OFFSETS]
        self._internal_reported = False
        self._recorded: set[int] = set()
        """Subjects whose history is recorded."""
        self._tell_history: Callable[[bool], None] | None = None
        shared, values = log.subjects.defaults, effective({}, defaults)
        shared.log_append_time, shared.delay_enabled = values.log_append_time, values.delay_enabled
        shared.history = values.history
        for subject in log.subjects:
            self._added(subject)
            configs = registry.configs(subject.id)
            if configs or (shared.history and subject.name in INTERNAL):
                self._apply(subject, configs)

    def watch_history(self, tell: Callable[[bool], None]) -> None:
        """`tell` is called with whether the history of any subject is recorded: now, and when that
        changes."""
        self._tell_history = tell
        tell(bool(self._recorded))

    def check_new(self, name: str) -> None:
        """Raises Refused unless a subject of this name may be made."""
        check_name(name)
        if name in self._log.subjects.by_name:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        other = self._by_metric_name.get(_metric_name(name))
        if other is not None:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name!r} collides with the existing topic {other!r}: "
                "'.' and '_' are taken for the same",
            )

    async def create_all(
        self, wanted: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Subject | Answerable]:
        """Make several subjects, with their configs: one sync and one SQL transaction serve many."""
        outcome: dict[str, Subject | Answerable] = {}

        async def create(name: str) -> None:
            try:
                outcome[name] = await self.create(name, wanted[name])
            except ANSWERABLE as error:
                outcome[name] = error

        await _together(create, list(wanted))
        return outcome

    async def delete_all(self, subjects: Sequence[Subject]) -> dict[Subject, Answerable]:
        """Delete several subjects; those that could not be deleted, and why."""
        failed: dict[Subject, Answerable] = {}

        async def delete(subject: Subject) -> None:
            try:
                await self.delete(subject)
            except ANSWERABLE as error:
                failed[subject] = error

        await _together(delete, subjects)
        return failed

    async def create(self, name: str, configs: Mapping[str, str]) -> Subject:
        """Make a subject; durable when it returns. `configs` must have been validated."""
        self.check_new(name)
        subject = self._log.create_subject_nowait(name)
        self._added(subject)
        self._apply(subject, configs)
        with trio.CancelScope(shield=True):
            await self._log.wait_synced()
            try:
                await self._registry.put_subject(subject.id, subject.topic_id, name, configs)
            except MetaError as error:
                logger.error("topic %s was created, but without its configs: %s", name, error)
                self._apply(subject, {})
                raise StoreError(f"created, but with default configs: {error}") from error
            await self._groups.prepare_added(subject)
        if not subject.deleted:
            self._groups.subject_added(subject)
        logger.info("topic %s created%s", name, f" with {dict(configs)}" if configs else "")
        return subject

    async def make_retry(self) -> None:
        """Make the topic for commands, unless it exists."""
        self._internal.append(RETRY)
        await self._make([RETRY])

    async def make_internal(self) -> None:
        """Make the topics that Kafka has for itself, and ours if it could not be made before."""
        await self._make(self._internal)

    async def make_actions(self) -> Subject:
        """The subject of the history, with a bound; made if it does not exist. Raises what a creation
        raises."""
        found = self._log.subjects.by_name.get(ACTIONS)
        if found is None:
            return await self.create(ACTIONS, self._actions_bounds({}))
        missing = self._actions_bounds(self._registry.configs(found.id))
        if missing:  # SQL was lost, or somebody has reset it: there must be a bound
            await self.alter(found, missing)
        return found

    def _actions_bounds(self, configs: Mapping[str, str]) -> dict[str, str]:
        longest = self.defaults.retention_ms
        bounds = {
            "retention.ms": str(ACTIONS_MS if longest < 0 else min(ACTIONS_MS, longest)),
            "retention.bytes": str(ACTIONS_BYTES),
        }
        return {name: value for name, value in bounds.items() if name not in configs}

    async def _make(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._log.subjects.by_name:
                try:
                    await self.create(name, {})
                except ANSWERABLE as error:
                    if not self._internal_reported:
                        logger.warning("topic %s cannot be made: %s", name, error)
                    self._internal_reported = True

    async def delete(self, subject: Subject) -> None:
        """Delete a subject with all its messages, also those that are pending; durable when it returns."""
        _check_changes(subject, ACTIONS)
        pending = await self._delay.count(subject, 0, LONG_MAX)
        if subject.deleted:  # another client was quicker
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {subject.name!r} any more"
            )
        self._log.delete_subject_nowait(subject)
        self._removed(subject)
        self._groups.subject_removed(subject)
        with trio.CancelScope(shield=True):
            await self._log.wait_synced()
            try:
                await self._registry.delete_subject(subject.id)
            except MetaError as error:
                logger.error("the configs of deleted topic %s remain: %s", subject.name, error)
        also = f", with {pending} messages that were pending" if pending else ""
        logger.info("topic %s deleted%s", subject.name, also)

    async def alter(self, subject: Subject, changes: Mapping[str, str | None]) -> None:
        """Set (or, with None, reset) configs that have been validated."""
        _check_changes(subject)
        with trio.CancelScope(shield=True):
            await self._registry.alter_subject(subject.id, changes)
        if not subject.deleted:
            self._apply(subject, self._registry.configs(subject.id))
            logger.info("topic %s: configs changed: %s", subject.name, dict(changes))

    def _apply(self, subject: Subject, configs: Mapping[str, str]) -> None:
        values = effective(configs, self.defaults)
        config = SubjectConfig(
            max_message_bytes=values.max_message_bytes,
            retention_ms=values.retention_ms,
            retention_bytes=values.retention_bytes,
            log_append_time=values.log_append_time,
            delay_enabled=values.delay_enabled,
            index_keys=values.index_keys,
            history=0 if subject.name in INTERNAL else values.history,
        )
        shared = self._log.subjects.defaults
        before, subject.config = subject.config, shared if config == shared else config
        if before.index_keys != config.index_keys:
            self.keys_changed(subject)
        self._note_history(subject)

    def _note_history(self, subject: Subject) -> None:
        before = bool(self._recorded)
        recorded = subject.config.history and subject.name not in INTERNAL
        if recorded and not subject.deleted:
            self._recorded.add(subject.id)
        else:
            self._recorded.discard(subject.id)
        if bool(self._recorded) is not before and self._tell_history is not None:
            self._tell_history(not before)

    def _added(self, subject: Subject) -> None:
        self._note_history(subject)
        self.table.add(subject)
        metric = _metric_name(subject.name)
        if metric:
            self._by_metric_name[metric] = subject.name

    def _removed(self, subject: Subject) -> None:
        self._note_history(subject)
        self.table.remove(subject)
        metric = _metric_name(subject.name)
        if self._by_metric_name.get(metric) == subject.name:
            del self._by_metric_name[metric]


async def _together(change: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Make changes side by side, a limited number at a time, and wait for all."""
    for start in range(0, len(items), AT_A_TIME):
        async with trio.open_nursery() as nursery:
            for item in items[start : start + AT_A_TIME]:
                nursery.start_soon(change, item)


def _check_changes(subject: Subject, *also: str) -> None:
    if subject.name == RETRY:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {RETRY!r} is the broker's own: it is neither changed nor deleted",
        )
    if subject.name in also:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {subject.name!r} is the broker's own and is not deleted. What it holds goes with its "
            "retention.ms; history=off on a subject ends its recording",
        )


def _metric_name(name: str) -> str:
    """The name with which a subject's metrics would collide; empty for a name that cannot collide."""
    return name.replace(".", "_") if "." in name or "_" in name else ""
