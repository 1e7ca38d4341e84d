"""The tables of the meta store, and a checksum in every row.

SQLite does not check its pages: a flipped bit in `meta.db` is a valid database with another
value in it. So each row carries a checksum over its own columns, which is compared when the row is read
(once, at start). The checksum of a subject also covers the names of its configs: a config row that is
gone, or that now says another subject's id, shows there.

A row that does not fit its checksum is not used. `read` gives it apart, in `Damaged`; registry.py decides
what applies instead. Where a row, an index or a column's type is damaged, `write_again` makes the tables
again with all that was read: an index that has a row's true key, while the row has another, makes changes
of it fail. A damaged row stays damaged then (its checksum is NULL) until another value is stored for it.

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
    from collections.abc import Iterable, Mapping, Sequence

METADATA = sa.MetaData()


def _checksum_column() -> sa.Column[int]:
    """NULL in a row known to be damaged, and while an older schema is brought up to this one."""
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
    """Rows whose key is no longer of its type: they can only be reported."""


@dataclass(slots=True)
class Stored:
    """All that SQL holds: read once, at start."""

    subjects: dict[int, tuple[bytes, str]]
    configs: dict[int, dict[str, str]]
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    damaged: Damaged = field(default_factory=Damaged)


def checksum(*columns: Any) -> int:
    """Over the columns as Python writes them in ASCII, so with their types and where each ends. Text that
    was no UTF-8 differs too: its bytes are read as escapes (store.py)."""
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
    damaged, columns, names = stored.damaged, SUBJECTS.c, _names(stored)
    as_found = sa.type_coerce(columns.topic_id, sa.types.NullType())
    rows = sa.select(columns.id, as_found, columns.name, columns.checksum)
    for id_, topic_id, name, found in connection.execute(rows):
        octets = bytes(topic_id) if isinstance(topic_id, bytes | memoryview) else b""
        if subject_checksum(id_, octets, name, names.get(id_, ())) == found:
            stored.subjects[id_] = (octets, name)
        elif isinstance(id_, int):
            damaged.subjects.add(id_)
        else:
            damaged.unreadable.append(f"subjects ({id_!r}, {topic_id!r}, {name!r})")


def schema_fits(connection: sa.Connection) -> bool:
    """Whether SQLite's tables have our columns: one of another type would change what it is given."""
    for table in METADATA.sorted_tables:
        info = connection.exec_driver_sql(f"PRAGMA table_info({table.name})").all()
        found = [
            (name, type_, bool(not_null), key > 0) for _, name, type_, not_null, _, key in info
        ]
        if found != [_described(column, connection.dialect) for column in table.columns]:
            return False
    return True


def _described(column: sa.Column[Any], dialect: sa.Dialect) -> tuple[str, str, bool, bool]:
    type_ = column.type.compile(dialect=dialect)
    return column.name, type_, not column.nullable, column.primary_key


def write_again(connection: sa.Connection, stored: Stored) -> None:
    """Leaves out what is unreadable, and the properties."""
    METADATA.drop_all(connection)
    METADATA.create_all(connection)
    damaged, names = stored.damaged, _names(stored)
    subjects = [
        (id_, topic_id, name, subject_checksum(id_, topic_id, name, names.get(id_, ())))
        for id_, (topic_id, name) in stored.subjects.items()
    ]
    lost = [(id_, b"", "", None) for id_ in damaged.subjects - stored.subjects.keys()]
    insert(connection, SUBJECTS, [*subjects, *lost])
    insert(connection, CONFIGS, _both(stored.configs, damaged.configs))
    insert(connection, GROUP_CONFIGS, _both(stored.group_configs, damaged.group_configs))


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        columns = table.columns.keys()
        connection.execute(sa.insert(table), [dict(zip(columns, row, strict=True)) for row in rows])


def _names(stored: Stored) -> dict[int, set[str]]:
    """What configs each subject has, damaged ones too."""
    names: dict[int, set[str]] = {}
    for configs in (stored.configs, stored.damaged.configs):
        for id_, mine in configs.items():
            names.setdefault(id_, set()).update(mine)
    return names


def _both(
    good: Mapping[Any, Mapping[str, str]], damaged: Mapping[Any, Mapping[str, str]]
) -> list[tuple[Any, str, str, int | None]]:
    rows: list[tuple[Any, str, str, int | None]] = [
        (key, name, value, checksum(key, name, value))
        for key, configs in good.items()
        for name, value in configs.items()
    ]
    return rows + [
        (key, name, value, None)
        for key, configs in damaged.items()
        for name, value in configs.items()
        if name not in good.get(key, {})
    ]
