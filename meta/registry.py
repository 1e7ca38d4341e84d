"""Subjects, and configs of subjects and groups: answers from memory, changes through SQL.

    registry = Registry.open(directory / "meta.db")           # blocking, before the loop
    for line in registry.reconcile(log.subjects.by_name.values()): ...
    registry.configs(subject.id)                              # only what was set explicitly
    await registry.put_subject(subject.id, subject.topic_id, subject.name, configs)
    await registry.alter_subject(subject.id, {"retention.ms": None})
    await registry.delete_subject(subject.id)
    registry.group_config("billing").consume_mode             # in force, the default if not set
    await registry.alter_group("billing", {"consume.mode": "shared"})

Rules
- SQL first, in a thread; then memory. What `configs` answers is durable.
- Changes happen one after the other. Those that come while SQL is busy share the next
  transaction.
- A cancelled change has happened completely or not at all, both in SQL and in memory.
- The message log is the truth about which subjects exist. A creation is answered when both the
  log and the registry have it. A crash in between leaves it in one of the two, and `reconcile` corrects
  that at the next start: what only the log has is put back (with default configs, and a line in the
  log), what only SQL has is dropped.
- A group's configs belong to its name, whether or not the group exists. The broker's own are kept
  beside them, under a name that no group's configs can have: the empty one.
- A row that does not fit its checksum (rows.py) is not used. `reconcile` reports it, with what was found,
  and stores a value that does the least harm while the true one is unknown (repair.py).
- Validation is not here: see definitions.py and group_configs.py. A stored value that is no
  longer allowed stays, and is reported.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import trio

from kumquat.meta.changes import (
    BROKER,
    AlterGroup,
    AlterSubject,
    Change,
    DeleteSubject,
    PutSubject,
)
from kumquat.meta.definitions import outdated
from kumquat.meta.group_configs import GroupConfig, effective_group
from kumquat.meta.repair import NO_LIMITS, group_repairs, safe_configs, subject_lines
from kumquat.meta.store import Store

if TYPE_CHECKING:
    from kumquat.meta.errors import StoreError

logger = logging.getLogger(__name__)
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NAMES_SHOWN = 5
_GROUP_DEFAULTS = effective_group({})


class LogSubject(Protocol):
    """What the log knows of a subject."""

    @property
    def id(self) -> int: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def name(self) -> str: ...


class _Pending:
    """A change that waits for its transaction; `error` counts once it is done."""

    __slots__ = ("change", "done", "error")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.done = False
        self.error: StoreError | None = None


class Registry:
    """Use `Registry.open`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._configs: dict[int, Mapping[str, str]] = dict(store.stored.configs)
        self._group_configs: dict[str, Mapping[str, str]] = dict(store.stored.group_configs)
        self._groups: dict[str, GroupConfig] = {
            name: effective_group(configs) for name, configs in self._group_configs.items()
        }
        self._waiting: list[_Pending] = []
        self._turn = trio.Lock()
        self.thread = trio.CapacityLimiter(1)
        """A thread of its own, so that SQL does not wait for other work."""

    @classmethod
    def open(cls, url: str | Path) -> "Registry":
        """Opens the store at a SQLAlchemy URL or a path; raises StoreError when it cannot."""
        return cls(Store.open(url))

    def configs(self, subject_id: int) -> Mapping[str, str]:
        return self._configs.get(subject_id, _NOTHING)

    def group_configs(self, name: str) -> Mapping[str, str]:
        """Only what was set explicitly."""
        return self._group_configs.get(name, _NOTHING)

    def group_config(self, name: str) -> GroupConfig:
        """What is in force."""
        return self._groups.get(name, _GROUP_DEFAULTS)

    def reconcile(
        self, subjects: Iterable[LogSubject], holding: Collection[int] = frozenset()
    ) -> list[str]:
        """Makes SQL agree with the log; returns lines that an operator should know. `holding`: the ids of
        the subjects that have messages; lost configs must not have these deleted."""
        stored, damaged = self._store.stored, self._store.stored.damaged
        in_log = {subject.id: subject for subject in subjects}
        put_back = [
            PutSubject(
                subject.id, bytes(subject.topic_id), subject.name, self._kept(subject.id, holding)
            )
            for subject in in_log.values()
            if stored.subjects.get(subject.id) != (subject.topic_id, subject.name)
            or subject.id in damaged.configs
        ]
        fresh = {change.id for change in put_back}
        known = {*stored.subjects, *stored.configs, *damaged.subjects, *damaged.configs}
        dropped = sorted(id_ for id_ in known if id_ not in in_log or id_ in fresh)
        names = {subject.id: subject.name for subject in in_log.values()}
        for line in subject_lines(damaged, names, {c.id: c.configs for c in put_back}):
            logger.error("%s", line)
        lines = self._report(put_back, [id_ for id_ in dropped if id_ not in in_log])
        if put_back or dropped:
            self._store.replace(dropped, put_back)
        for id_ in dropped:
            self._configs.pop(id_, None)
        self._configs.update({change.id: change.configs for change in put_back if change.configs})
        self._repair_groups()
        stored.subjects.clear()
        stored.configs.clear()
        for id_, configs in self._configs.items():
            reasons = outdated(configs)
            lines += [f"subject {names[id_]}: {r}; the default applies" for r in reasons]
        return lines

    def _repair_groups(self) -> None:
        changes, lines = group_repairs(self._store.stored)
        for line in lines:
            logger.error("%s", line)
        for change, error in zip(changes, self._store.apply(changes), strict=True):
            if error:
                logger.error("%s: this holds until the next start, which tries again", error)
            self._apply_to_group(change)

    async def put_subject(
        self, subject_id: int, topic_id: bytes, name: str, configs: Mapping[str, str]
    ) -> None:
        await self._change(PutSubject(subject_id, bytes(topic_id), name, dict(configs)))

    async def delete_subject(self, subject_id: int) -> None:
        await self._change(DeleteSubject(subject_id))

    async def alter_subject(self, subject_id: int, configs: Mapping[str, str | None]) -> None:
        """Sets the given configs; None takes one back to its default. The others stay."""
        await self._change(AlterSubject(subject_id, dict(configs)))

    @property
    def broker_configs(self) -> Mapping[str, str]:
        return self.group_configs(BROKER)

    async def alter_broker(self, configs: Mapping[str, str | None]) -> None:
        await self.alter_group(BROKER, configs)

    async def alter_group(self, name: str, configs: Mapping[str, str | None]) -> None:
        await self._change(AlterGroup(name, dict(configs)))

    def close(self) -> None:
        self._store.close()

    async def _change(self, change: Change) -> None:
        pending = _Pending(change)
        self._waiting.append(pending)
        try:
            async with self._turn:
                if not pending.done:
                    await self._commit()
                    assert pending.done
        finally:
            if pending in self._waiting:  # cancelled before its turn: it never happened
                self._waiting.remove(pending)
        if pending.error:
            raise pending.error

    async def _commit(self) -> None:
        """One transaction for all changes that wait, and then the same in memory."""
        batch, self._waiting = self._waiting, []
        changes = [pending.change for pending in batch]
        with trio.CancelScope(shield=True):
            errors = await trio.to_thread.run_sync(self._store.apply, changes, limiter=self.thread)
        for pending, error in zip(batch, errors, strict=True):
            pending.done, pending.error = True, error
            if error is None:
                self._apply(pending.change)

    def _apply(self, change: Change) -> None:
        match change:
            case AlterGroup():
                self._apply_to_group(change)
                return
            case PutSubject():
                configs = dict(change.configs)
            case DeleteSubject():
                configs = {}
            case AlterSubject():
                configs = _merged(self.configs(change.id), change.configs)
        if configs:
            self._configs[change.id] = MappingProxyType(configs)
        else:
            self._configs.pop(change.id, None)

    def _apply_to_group(self, change: AlterGroup) -> None:
        configs = _merged(self.group_configs(change.name), change.configs)
        if configs:
            self._group_configs[change.name] = MappingProxyType(configs)
            self._groups[change.name] = effective_group(configs)
        else:
            self._group_configs.pop(change.name, None)
            self._groups.pop(change.name, None)

    def _kept(self, subject_id: int, holding: Collection[int]) -> Mapping[str, str]:
        """Configs of a subject that is put back: SQL lacked it or its row was damaged, or a config
        of it was. Where all are lost, or the row is that of another subject: none, or, if it has messages,
        those that delete none of them."""
        stored = self._store.stored
        configs = stored.configs.get(subject_id, {})
        if subject_id in stored.damaged.subjects or subject_id in stored.damaged.configs:
            return safe_configs(configs, stored.damaged, subject_id)
        if configs and subject_id not in stored.subjects:
            return configs
        return NO_LIMITS if subject_id in holding else {}

    def _report(self, put_back: Sequence[PutSubject], dropped: Sequence[int]) -> list[str]:
        lines = []
        stored = self._store.stored.subjects
        in_log = {c.id: (c.topic_id, c.name) for c in put_back}
        foreign = [c for c in put_back if stored.get(c.id, in_log[c.id]) != in_log[c.id]]
        damaged = self._store.stored.damaged.subjects
        lacked = [c for c in put_back if c.id not in stored and c.id not in damaged]
        if lacked:
            lines.append(
                f"the log has {_some([c.name for c in lacked])} that the meta store lacked: "
                f"put back, with default configs{_limits(lacked)}"
            )
        if foreign:
            lines.append(
                f"the log has {_some([c.name for c in foreign])} the meta store had under another name or "
                f"topic id: put back, with default configs{_limits(foreign)}"
            )
        gone = [stored[id_][1] for id_ in dropped if id_ in stored]
        if gone:
            lines.append(f"the meta store had {_some(gone)} that the log lacks: dropped")
        return lines


def _merged(present: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**present, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _limits(put_back: Sequence[PutSubject]) -> str:
    held = [change.name for change in put_back if change.configs == NO_LIMITS]
    if not held:
        return ""
    return (
        f". Of {_some(held)} nothing is deleted, and the disk is not freed, until you set retention.ms and "
        "retention.bytes again or take them back to the default (kafka-configs --alter): they may have "
        "been longer than the broker's"
    )


def _some(names: Sequence[str]) -> str:
    """How many, and the names of a few: 100,000 subjects must not be 100,000 lines."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{len(names)} {'subject' if len(names) == 1 else 'subjects'} ({shown}{more})"
