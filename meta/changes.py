"""Changes of the meta store: what can be changed, and the SQL of each change.

Rows are deleted and inserted as a whole, in SQL that PostgreSQL runs too; there is no upsert. Each row gets
its checksum here (rows.py). A subject is inserted after its configs, whose names its checksum covers.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import sqlalchemy as sa

from kumquat.meta.rows import (
    CONFIGS,
    GROUP_CONFIGS,
    SUBJECTS,
    checksum,
    insert,
    subject_checksum,
)

BROKER = ""
"""The name under which the broker's own configs are kept, beside those of groups."""
_AT_ONCE = 500  # SQLite may be built for no more than 999 values in a statement


@dataclass(frozen=True, slots=True)
class PutSubject:
    """The subject exists, with exactly these configs."""

    id: int
    topic_id: bytes
    name: str
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    id: int


@dataclass(frozen=True, slots=True)
class AlterSubject:
    """Sets the named configs; None takes one back to its default."""

    id: int
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class AlterGroup:
    """The same for the configs of a consumer group."""

    name: str
    configs: Mapping[str, str | None]


Change = PutSubject | DeleteSubject | AlterSubject | AlterGroup


def make_changes(connection: sa.Connection, changes: Sequence[Change]) -> None:
    for kind, run in itertools.groupby(changes, type):
        if kind is AlterSubject:
            for change in run:
                _alter(connection, cast("AlterSubject", change))
        elif kind is AlterGroup:
            for change in run:
                _alter_group(connection, cast("AlterGroup", change))
        else:  # a run of creations or of deletions is a statement or two
            some = [c for c in run if isinstance(c, PutSubject | DeleteSubject)]
            drop_subjects(connection, [change.id for change in some])
            put_subjects(connection, [c for c in some if isinstance(c, PutSubject)])


def drop_subjects(connection: sa.Connection, ids: Sequence[int]) -> None:
    for some in _portions(ids):
        connection.execute(sa.delete(CONFIGS).where(CONFIGS.c.subject_id.in_(some)))
        connection.execute(sa.delete(SUBJECTS).where(SUBJECTS.c.id.in_(some)))


def put_subjects(connection: sa.Connection, changes: Sequence[PutSubject]) -> None:
    insert_configs(connection, [(c.id, n, v) for c in changes for n, v in c.configs.items()])
    insert_subjects(connection, [(c.id, c.topic_id, c.name) for c in changes])


def _alter(connection: sa.Connection, change: AlterSubject) -> None:
    mine = sa.and_(CONFIGS.c.subject_id == change.id, CONFIGS.c.name.in_(list(change.configs)))
    connection.execute(sa.delete(CONFIGS).where(mine))
    kept = [(change.id, name, value) for name, value in change.configs.items() if value is not None]
    insert_configs(connection, kept)
    subject = sa.select(SUBJECTS).where(SUBJECTS.c.id == change.id)
    for id_, topic_id, name, _ in connection.execute(subject).all():
        connection.execute(sa.delete(SUBJECTS).where(SUBJECTS.c.id == id_))
        insert_subjects(connection, [(id_, topic_id, name)])


def _alter_group(connection: sa.Connection, change: AlterGroup) -> None:
    table, names = GROUP_CONFIGS, list(change.configs)
    mine = sa.and_(table.c.group_name == change.name, table.c.name.in_(names))
    connection.execute(sa.delete(table).where(mine))
    given = change.configs.items()
    kept = [(change.name, name, value) for name, value in given if value is not None]
    insert_group_configs(connection, kept)


def insert_configs(connection: sa.Connection, rows: Sequence[tuple[int, str, str]]) -> None:
    insert(connection, CONFIGS, [(*row, checksum(*row)) for row in rows])


def insert_group_configs(connection: sa.Connection, rows: Sequence[tuple[str, str, str]]) -> None:
    insert(connection, GROUP_CONFIGS, [(*row, checksum(*row)) for row in rows])


def insert_subjects(connection: sa.Connection, rows: Sequence[tuple[int, bytes, str]]) -> None:
    """After their configs, whose names the checksum covers."""
    names: dict[int, list[str]] = {}
    for some in _portions([row[0] for row in rows]):
        mine = CONFIGS.c.subject_id.in_(some)
        for id_, name in connection.execute(
            sa.select(CONFIGS.c.subject_id, CONFIGS.c.name).where(mine)
        ):
            names.setdefault(id_, []).append(name)
    sealed = [(*row, subject_checksum(*row, names.get(row[0], ()))) for row in rows]
    insert(connection, SUBJECTS, sealed)


def _portions(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]
