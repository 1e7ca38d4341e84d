"""The tables of the meta store, and a checksum in every row.

SQLite guards its pages against nothing: a flipped bit in `meta.db` is a valid database with another
value in it. So each row carries a checksum over its own columns, which is compared when the row is read
(once, at start). The checksum of a subject also covers the names of its configs: a config row that is
gone, or that now says another subject's id, shows there.

A row that does not fit its checksum is not used. `read` gives it apart, in `Damaged`; registry.py decides
what applies instead.

Tables
- properties: `schema.version`, the first thing looked at; a newer one than ours is refused, since
  an older program must not guess.
- subjects: id, topic id, name, as in the log (which is the truth about them).
- subject_configs: the configs that were set explicitly, as text.
- group_configs: the same of consumer groups, by the group's name.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterable

METADATA = sa.MetaData()


def _checksum_column() -> sa.Column[int]:
    """NULL only while a store of an older schema is brought up to this one."""
    return sa.Column("checksum", sa.BigInteger)


PROPERTIES = sa.Table(
    "properties",
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    _checksum_column(),
)
SUBJECTS = sa.Table(
    "subjects",
    METADATA,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("topic_id", sa.LargeBinary(16), nullable=False),
    sa.Column("name", sa.String(249), nullable=False),
    _checksum_column(),
)
CONFIGS = sa.Table(
    "subject_configs",
    METADATA,
    sa.Column("subject_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    _checksum_column(),
)
GROUP_CONFIGS = sa.Table(
    "group_configs",
    METADATA,
    sa.Column("group_name", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    _checksum_column(),
)


@dataclass(slots=True)
class Damaged:
    """What did not fit its checksum, as it was found: any part of it may be wrong."""

    subjects: set[int] = field(default_factory=set)
    """Whose row is damaged, or whose configs are not those that were stored."""
    configs: dict[int, dict[str, str]] = field(default_factory=dict)
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    """Rows whose key is no longer of its type: they can be told of, and no more."""


@dataclass(slots=True)
class Stored:
    """All that SQL holds: read once, at start."""

    subjects: dict[int, tuple[bytes, str]]
    configs: dict[int, dict[str, str]]
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    damaged: Damaged = field(default_factory=Damaged)


def checksum(*columns: Any) -> int:
    """Over the columns as Python writes them in ASCII, so with their types and where each ends. Text that
    was no UTF-8 differs too: it is read as surrogates (store.py), which are written as such."""
    return zlib.crc32(ascii(columns).encode())


def subject_checksum(id_: int, topic_id: bytes, name: str, configs: Iterable[str]) -> int:
    return checksum(id_, bytes(topic_id), name, *sorted(configs))


def read(connection: sa.Connection) -> Stored:
    stored = Stored({}, {})
    _read_configs(connection, stored)
    _read_groups(connection, stored)
    _read_subjects(connection, stored)
    return stored


def _read_configs(connection: sa.Connection, stored: Stored) -> None:
    for id_, name, value, found in connection.execute(sa.select(CONFIGS)):
        if checksum(id_, name, value) == found:
            stored.configs.setdefault(id_, {})[name] = value
        elif isinstance(id_, int) and isinstance(name, str):
            stored.damaged.configs.setdefault(id_, {})[name] = str(value)
        else:
            stored.damaged.unreadable.append(f"subject_configs ({id_!r}, {name!r}, {value!r})")


def _read_groups(connection: sa.Connection, stored: Stored) -> None:
    for group, name, value, found in connection.execute(sa.select(GROUP_CONFIGS)):
        if checksum(group, name, value) == found:
            stored.group_configs.setdefault(group, {})[name] = value
        elif isinstance(group, str) and isinstance(name, str):
            stored.damaged.group_configs.setdefault(group, {})[name] = str(value)
        else:
            stored.damaged.unreadable.append(f"group_configs ({group!r}, {name!r}, {value!r})")


def _read_subjects(connection: sa.Connection, stored: Stored) -> None:
    """After the configs, whose names count."""
    damaged, columns = stored.damaged, SUBJECTS.c
    as_found = sa.type_coerce(columns.topic_id, sa.types.NullType())
    rows = sa.select(columns.id, as_found, columns.name, columns.checksum)
    for id_, topic_id, name, found in connection.execute(rows):
        names = {*stored.configs.get(id_, ()), *damaged.configs.get(id_, ())}
        octets = bytes(topic_id) if isinstance(topic_id, bytes | memoryview) else b""
        if subject_checksum(id_, octets, name, names) == found:
            stored.subjects[id_] = (octets, name)
        elif isinstance(id_, int):
            damaged.subjects.add(id_)
        else:
            damaged.unreadable.append(f"subjects ({id_!r}, {topic_id!r}, {name!r})")
