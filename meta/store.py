"""The SQL side of the registry: opening, transactions, and what to do with a damaged file.

Blocking; it is called before the event loop starts, or in a thread. SQLite by default (`meta.db`
in the data folder), and SQL that PostgreSQL runs too. Functions for SQLite alone say so in their
name or check the dialect first.

The tables are in rows.py, with the checksum that each row carries; the SQL of changes is in
changes.py. To change the schema: raise SCHEMA_VERSION, and in `_upgrade` bring the older ones up to
it in the same transaction.

Rules
- A change is durable when `apply` returns: `synchronous=FULL`, in WAL mode, which costs one sync
  per transaction where a rollback journal costs three. Several changes share a transaction;
  if it fails, each is tried alone, so that one bad change does not make the others fail.
- A file that is not a database, is damaged or lacks our tables or their columns is set aside as
  `meta.db.corrupt-<time>`, never deleted, and replaced by an empty one: configs are lost
  then, messages never. A file that is whole but cannot be opened (permissions, no space) is a
  StoreError: the log in the same folder could not be written either.
- A single row that is damaged costs that row only: `stored.damaged` has it. The tables are then made
  again, in the transaction that read them; likewise where an index or a column's type is damaged.

| schema version | what it brought |
|---|---|
| 1 | properties, subjects, subject_configs |
| 2 | group_configs |
| 3 | a checksum in each row |
"""

import logging
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from kumquat.meta.changes import (
    Change,
    PutSubject,
    drop_subjects,
    insert_configs,
    insert_group_configs,
    insert_subjects,
    make_changes,
    put_subjects,
)
from kumquat.meta.errors import StoreError
from kumquat.meta.rows import (
    CONFIGS,
    GROUP_CONFIGS,
    METADATA,
    PROPERTIES,
    SUBJECTS,
    Damaged,
    Stored,
    checksum,
    insert,
    read,
    schema_fits,
    write_again,
)

logger = logging.getLogger(__name__)
SCHEMA_VERSION = 3
_VERSION = "schema.version"
_NOT_THE_FILE = {  # errors of SQLite that do not mean that the file is damaged
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


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
            _check_header(url)
            with engine.begin() as connection:
                return cls(engine, _load(connection))
        except BaseException as error:
            engine.dispose()
            if engine.dialect.name == "sqlite" and _is_damage(error):
                raise _UnreadableError(_reason(error)) from error
            raise

    def apply(self, changes: Sequence[Change]) -> list[StoreError | None]:
        """Makes the changes durable, in order; gives for each None, or why it was not made."""
        if not changes:
            return []
        try:
            with self._engine.begin() as connection:
                make_changes(connection, changes)
        except Exception as error:  # those who wait for a change must learn that it failed
            if len(changes) == 1:
                return [StoreError(f"the meta store refused a change: {_reason(error)}")]
            return [self.apply([change])[0] for change in changes]
        return [None] * len(changes)

    def replace(self, dropped: Sequence[int], put: Sequence[PutSubject]) -> None:
        """Drops subjects, then puts some (not there, or just dropped), in one transaction."""
        try:
            with self._engine.begin() as connection:
                drop_subjects(connection, dropped)
                put_subjects(connection, put)
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(f"the meta store refused a change: {_reason(error)}") from error

    def close(self) -> None:
        self._engine.dispose()


def _url_of(place: str | Path) -> sa.URL:
    if isinstance(place, Path):
        return sa.URL.create("sqlite", database=str(place))
    return sa.make_url(place)


def _check_header(url: sa.URL) -> None:
    """SQLite reads a file whose header gives a later format for writers, and refuses every change of it."""
    if url.get_backend_name() != "sqlite" or not url.database or not Path(url.database).exists():
        return
    with Path(url.database).open("rb") as file:
        if file.read(20)[18:19] > b"\x02":
            raise _UnreadableError("its header asks for a later SQLite to write it")


def _load(connection: sa.Connection) -> Stored:
    if not sa.inspect(connection).get_table_names():
        return _create(connection)
    sqlite = connection.dialect.name == "sqlite"
    whole = not sqlite or _is_whole_sqlite(connection)
    version = _version(connection)
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"the meta store has schema version {version}, and this Kumquat knows up to "
            f"{SCHEMA_VERSION}: start the newer Kumquat that wrote it"
        )
    if version < SCHEMA_VERSION:
        _upgrade(connection, version)
    stored = read(connection)
    if not whole or stored.damaged != Damaged() or (sqlite and not _fits_sqlite(connection)):
        write_again(connection, stored)
        _set_version(connection)
    return stored


def _is_whole_sqlite(connection: sa.Connection) -> bool:
    """False where all rows can be read but something is wrong. Raises where it is no database of ours."""
    found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
    if found == "ok":
        return True
    rows = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if rows != "ok":
        raise _UnreadableError(str(rows))
    logger.error("an index of the meta store is damaged (%s): made again from its table", found)
    return False


def _fits_sqlite(connection: sa.Connection) -> bool:
    if schema_fits(connection):
        return True
    logger.error("the columns of the meta store's tables are damaged: the tables are made again")
    return False


def _version(connection: sa.Connection) -> int:
    columns = {column["name"] for column in sa.inspect(connection).get_columns(PROPERTIES.name)}
    known = [column for column in PROPERTIES.c if column.name in columns]
    mine = sa.select(*known).where(PROPERTIES.c.name == _VERSION)
    row = connection.execute(mine).mappings().first()
    if "checksum" in columns and (not row or checksum(_VERSION, row["value"]) != row["checksum"]):
        logger.error(
            "the meta store's schema version is damaged (found %r): taken for %d and written again",
            row and row["value"],
            SCHEMA_VERSION,
        )
        _set_version(connection)
        return SCHEMA_VERSION
    if row is None or not str(row["value"]).isdecimal():
        raise _UnreadableError("it has no schema version")
    return int(row["value"])


def _set_version(connection: sa.Connection) -> None:
    value = str(SCHEMA_VERSION)
    connection.execute(sa.delete(PROPERTIES))  # the only one there is
    insert(connection, PROPERTIES, [(_VERSION, value, checksum(_VERSION, value))])


def _upgrade(connection: sa.Connection, version: int) -> None:
    """Version 1 knew no groups, version 2 no checksums: what the rows hold now is taken as correct."""
    if version < 2:
        GROUP_CONFIGS.create(connection)
    for table in (PROPERTIES, SUBJECTS, CONFIGS, GROUP_CONFIGS):
        if version >= 2 or table is not GROUP_CONFIGS:
            add = f"ALTER TABLE {table.name} ADD COLUMN checksum BIGINT"
            connection.execute(sa.text(add))
    subjects = connection.execute(sa.select(SUBJECTS)).all()
    configs = connection.execute(sa.select(CONFIGS)).all()
    groups = connection.execute(sa.select(GROUP_CONFIGS)).all()
    for table in (SUBJECTS, CONFIGS, GROUP_CONFIGS):
        connection.execute(sa.delete(table))
    insert_configs(connection, [(id_, name, value) for id_, name, value, _ in configs])
    insert_group_configs(connection, [(group, name, value) for group, name, value, _ in groups])
    insert_subjects(connection, [(id_, topic_id, name) for id_, topic_id, name, _ in subjects])
    _set_version(connection)


def _create(connection: sa.Connection) -> Stored:
    METADATA.create_all(connection)
    _set_version(connection)
    return Stored({}, {})


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # Python's driver would begin transactions by itself, and not before creating tables: we do it.
    connection.isolation_level = None
    # A damaged text must not make the rest unreadable, nor be one that cannot be written to a log or bound
    # in a statement: its row does not fit its checksum.
    connection.text_factory = _lenient
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _lenient(octets: bytes) -> str:
    return octets.decode(errors="backslashreplace")


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _is_damage(error: BaseException) -> bool:
    if isinstance(error, sa.exc.DBAPIError):
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        return code & 0xFF not in _NOT_THE_FILE
    # A table or a column that is not there; bytes that are no value at all.
    return isinstance(error, sa.exc.InvalidRequestError | LookupError | ValueError | TypeError)


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
