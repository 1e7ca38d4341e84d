"""The SQL side of the registry: tables, transactions, and what to do with a damaged file.

Blocking; it is called before the event loop starts, or in a thread. SQLite by default (`meta.db`
in the data folder), and SQL that PostgreSQL runs too: deletes and inserts of whole rows, no upsert.
What is SQLite's own says so in its name or asks for the dialect first.

Tables
- properties: `schema.version`, the first thing looked at; a newer one than ours is refused, since
  an older program must not guess. To change the schema: raise SCHEMA_VERSION, and in `_load`
  bring the older one up to it in the same transaction.
- subjects: id, topic id, name, as in the log (which is the truth about them).
- subject_configs: the configs that were set explicitly, as text.
- group_configs: the same of consumer groups, by the group's name (schema version 2 and up).

Rules
- A change is durable when `apply` returns: `synchronous=FULL`, in WAL mode, which costs one sync
  per transaction where a rollback journal costs three. Several changes share a transaction;
  should it fail, each is tried alone, so that a bad one does not take the others with it.
- A file that is not a database, is damaged or lacks our tables is set aside as
  `meta.db.corrupt-<time>`, never deleted, and an empty one takes its place: configs are lost
  then, messages never. A file that merely cannot be opened (permissions, no space) is a
  StoreError: the log in the same folder could not be written either.
"""

import itertools
import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from meta.errors import StoreError

logger = logging.getLogger(__name__)
SCHEMA_VERSION = 2
_VERSION = "schema.version"
_DROPPED_AT_ONCE = 500  # SQLite may be built for no more than 999 values in a statement

_metadata = sa.MetaData()
_properties = sa.Table(
    "properties",
    _metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
_subjects = sa.Table(
    "subjects",
    _metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("topic_id", sa.LargeBinary(16), nullable=False),
    sa.Column("name", sa.String(249), nullable=False),
)
_configs = sa.Table(
    "subject_configs",
    _metadata,
    sa.Column("subject_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
_group_configs = sa.Table(
    "group_configs",
    _metadata,
    sa.Column("group_name", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
_NOT_THE_FILE = {  # errors of SQLite that say nothing against the file
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


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


@dataclass(slots=True)
class Stored:
    """All that SQL holds: read once, at start."""

    subjects: dict[int, tuple[bytes, str]]
    configs: dict[int, dict[str, str]]
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)


class _UnreadableError(Exception):
    """The database is there, but is not one of ours, or not a whole one."""


class Store:
    """One open database."""

    def __init__(self, engine: sa.Engine, stored: Stored) -> None:
        self._engine = engine
        self.stored = stored

    @classmethod
    def open(cls, url: str | Path) -> "Store":
        """Opens or creates the database at a URL or a path; a damaged file is set aside."""
        target = _url_of(url)
        try:
            try:
                return cls._open(target)
            except _UnreadableError as damage:
                _set_aside(target, damage)
                return cls._open(target)
        except (sa.exc.SQLAlchemyError, OSError, _UnreadableError) as error:
            shown = target.render_as_string(hide_password=True)
            raise StoreError(f"cannot open the meta store {shown}: {_reason(error)}") from error

    @classmethod
    def _open(cls, url: sa.URL) -> "Store":
        engine = sa.create_engine(url)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        try:
            with engine.begin() as connection:
                return cls(engine, _load(connection))
        except BaseException as error:
            engine.dispose()
            if engine.dialect.name == "sqlite" and _is_damage(error):
                raise _UnreadableError(_reason(error)) from error
            raise

    def apply(self, changes: Sequence[Change]) -> list[StoreError | None]:
        """Makes the changes durable, in order; gives for each None, or why it was not made."""
        try:
            self._transact(changes)
        except Exception as error:  # whoever waits for a change must hear of it
            if len(changes) == 1:
                return [StoreError(f"the meta store refused a change: {_reason(error)}")]
            return [self.apply([change])[0] for change in changes]
        return [None] * len(changes)

    def replace(self, dropped: Sequence[int], put: Sequence[PutSubject]) -> None:
        """Drops subjects, then puts some (not there, or just dropped), in one transaction."""
        try:
            with self._engine.begin() as connection:
                _drop(connection, dropped)
                _insert(connection, put)
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(f"the meta store refused a change: {_reason(error)}") from error

    def close(self) -> None:
        self._engine.dispose()

    def _transact(self, changes: Sequence[Change]) -> None:
        with self._engine.begin() as connection:
            for kind, run in itertools.groupby(changes, type):
                if kind is AlterSubject:
                    for change in run:
                        _alter(connection, cast("AlterSubject", change))
                elif kind is AlterGroup:
                    for change in run:
                        _alter_group(connection, cast("AlterGroup", change))
                else:  # a run of creations or of deletions is a statement or two
                    some = [c for c in run if isinstance(c, PutSubject | DeleteSubject)]
                    _drop(connection, [change.id for change in some])
                    _insert(connection, [c for c in some if isinstance(c, PutSubject)])


def _url_of(place: str | Path) -> sa.URL:
    if isinstance(place, Path):
        return sa.URL.create("sqlite", database=str(place))
    return sa.make_url(place)


def _load(connection: sa.Connection) -> Stored:
    if not sa.inspect(connection).get_table_names():
        return _create(connection)
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        if found != "ok":
            raise _UnreadableError(str(found))
    by_name = sa.select(_properties.c.value).where(_properties.c.name == _VERSION)
    version: str | None = connection.execute(by_name).scalar_one_or_none()
    if version is None or not version.isdecimal():
        raise _UnreadableError("it has no schema version")
    if int(version) > SCHEMA_VERSION:
        raise StoreError(
            f"the meta store has schema version {version}, and this Kumquat knows up to "
            f"{SCHEMA_VERSION}: start the newer Kumquat that wrote it"
        )
    if int(version) < SCHEMA_VERSION:
        _upgrade(connection)
    return _read(connection)


def _upgrade(connection: sa.Connection) -> None:
    """From version 1, which knew no groups."""
    _group_configs.create(connection)
    mine = _properties.c.name == _VERSION
    connection.execute(sa.update(_properties).where(mine).values(value=str(SCHEMA_VERSION)))


def _create(connection: sa.Connection) -> Stored:
    _metadata.create_all(connection)
    connection.execute(sa.insert(_properties).values(name=_VERSION, value=str(SCHEMA_VERSION)))
    return Stored({}, {})


def _read(connection: sa.Connection) -> Stored:
    subjects = {
        id_: (bytes(topic_id), name)
        for id_, topic_id, name in connection.execute(sa.select(_subjects))
    }
    configs: dict[int, dict[str, str]] = {}
    for id_, name, value in connection.execute(sa.select(_configs)):
        configs.setdefault(id_, {})[name] = value
    groups: dict[str, dict[str, str]] = {}
    for group, name, value in connection.execute(sa.select(_group_configs)):
        groups.setdefault(group, {})[name] = value
    return Stored(subjects, configs, groups)


def _drop(connection: sa.Connection, ids: Sequence[int]) -> None:
    for start in range(0, len(ids), _DROPPED_AT_ONCE):
        some = ids[start : start + _DROPPED_AT_ONCE]
        connection.execute(sa.delete(_configs).where(_configs.c.subject_id.in_(some)))
        connection.execute(sa.delete(_subjects).where(_subjects.c.id.in_(some)))


def _insert(connection: sa.Connection, changes: Sequence[PutSubject]) -> None:
    if changes:
        rows = [{"id": c.id, "topic_id": c.topic_id, "name": c.name} for c in changes]
        connection.execute(sa.insert(_subjects), rows)
    _insert_configs(connection, [(c.id, n, v) for c in changes for n, v in c.configs.items()])


def _alter(connection: sa.Connection, change: AlterSubject) -> None:
    mine = sa.and_(_configs.c.subject_id == change.id, _configs.c.name.in_(list(change.configs)))
    connection.execute(sa.delete(_configs).where(mine))
    kept = [(change.id, name, value) for name, value in change.configs.items() if value is not None]
    _insert_configs(connection, kept)


def _alter_group(connection: sa.Connection, change: AlterGroup) -> None:
    table, names = _group_configs, list(change.configs)
    mine = sa.and_(table.c.group_name == change.name, table.c.name.in_(names))
    connection.execute(sa.delete(table).where(mine))
    rows = [
        {"group_name": change.name, "name": name, "value": value}
        for name, value in change.configs.items()
        if value is not None
    ]
    if rows:
        connection.execute(sa.insert(table), rows)


def _insert_configs(connection: sa.Connection, rows: Sequence[tuple[int, str, str]]) -> None:
    if rows:
        columns = ("subject_id", "name", "value")
        connection.execute(
            sa.insert(_configs), [dict(zip(columns, row, strict=True)) for row in rows]
        )


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # Python's driver would begin transactions by itself, and not before creating tables: we do it.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _is_damage(error: BaseException) -> bool:
    if isinstance(error, sa.exc.DBAPIError):
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        return code & 0xFF not in _NOT_THE_FILE
    return isinstance(error, ValueError | TypeError)  # bytes that are no text, or no value at all


def _set_aside(url: sa.URL, damage: _UnreadableError) -> None:
    if url.get_backend_name() != "sqlite" or not url.database:
        raise damage
    damaged = Path(url.database)
    stamp = f"{damaged.name}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    aside, count = damaged.with_name(stamp), 1
    while aside.exists():
        aside, count = damaged.with_name(f"{stamp}-{count}"), count + 1
    for suffix in ("", "-wal", "-shm"):
        part = damaged.with_name(damaged.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    logger.error(
        "the meta store %s is damaged (%s): kept as %s, starting with an empty one. "
        "Configs of subjects and groups are lost and back at their defaults; no message is affected",
        damaged,
        damage,
        aside.name,
    )


def _reason(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error)
