"""A database that is lost, damaged, foreign or newer; changes that must outlive a crash."""

import logging
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from kumquat.meta.changes import AlterGroup, AlterSubject, Change, DeleteSubject, PutSubject
from kumquat.meta.errors import StoreError
from kumquat.meta.rows import METADATA, Damaged, Stored, checksum
from kumquat.meta.store import Store

TOPIC_ID = bytes(range(16))
KEPT = PutSubject(1, TOPIC_ID, "kept", {"retention.ms": "5"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "meta.db"


def reopen(path: Path) -> Store:
    store = Store.open(path)
    store.close()
    return store


def filled(path: Path, subjects: int = 1) -> None:
    store = Store.open(path)
    store.replace([], [PutSubject(n, TOPIC_ID, f"s{n}", {"a": "b"}) for n in range(subjects)])
    store.close()


def aside(path: Path) -> list[Path]:
    return list(path.parent.glob("meta.db.corrupt-*"))


def usable_again(path: Path, what: str) -> None:
    """It opens, as it is or again, and takes a change that is there afterwards. Then all is removed."""
    store = Store.open(path)
    assert store.apply([KEPT]) == [None], what
    store.close()
    assert reopen(path).stored.configs[1] == KEPT.configs, what
    for leftover in (path, *aside(path)):
        leftover.unlink()


def test_changes_are_there_after_reopening(path: Path) -> None:
    store = Store.open(path)
    changes: list[Change] = [
        KEPT,
        PutSubject(2, TOPIC_ID, "gone", {"a": "b"}),
        AlterSubject(1, {"retention.ms": None, "max.message.bytes": "7", "segment.ms": "1"}),
        AlterSubject(1, {"max.message.bytes": "8"}),
        DeleteSubject(2),
        AlterGroup("g", {"consume.mode": "shared", "lease.max.records": "7"}),
        AlterGroup("g", {"consume.mode": None, "lease.max.records": "8"}),
        AlterGroup("gone", {"consume.mode": "shared"}),
        AlterGroup("gone", {"consume.mode": None}),
    ]
    assert store.apply(changes) == [None] * len(changes)
    store.close()
    stored = reopen(path).stored
    assert stored.subjects == {1: (TOPIC_ID, "kept")}
    assert stored.configs == {1: {"max.message.bytes": "8", "segment.ms": "1"}}
    assert stored.group_configs == {"g": {"lease.max.records": "8"}}


def test_a_put_replaces_what_was_there(path: Path) -> None:
    store = Store.open(path)
    store.apply([KEPT, KEPT])
    store.apply([PutSubject(1, TOPIC_ID, "renamed")])
    store.close()
    stored = reopen(path).stored
    assert (stored.subjects, stored.configs) == ({1: (TOPIC_ID, "renamed")}, {})


def test_a_change_outlives_a_killed_process(path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from kumquat.meta.store import Store\n"
        "from kumquat.meta.changes import PutSubject\n"
        "Store.open(Path(sys.argv[1])).apply([PutSubject(7, bytes(16), 'acked', {'a': 'b'})])\n"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert reopen(path).stored.subjects == {7: (bytes(16), "acked")}
    assert not aside(path)


def test_every_commit_is_synced(path: Path) -> None:
    store = Store.open(path)
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    store.close()


def test_a_bad_change_does_not_take_the_others_with_it(path: Path) -> None:
    store = Store.open(path)
    unstorable = PutSubject(2**70, TOPIC_ID, "no such id")
    first, second, third = store.apply([KEPT, unstorable, PutSubject(3, TOPIC_ID, "c")])
    assert (first, third) == (None, None)
    assert isinstance(second, StoreError)
    store.close()
    assert sorted(reopen(path).stored.subjects) == [1, 3]


def test_garbage_is_set_aside_and_said_loudly(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"this is not a database" * 100)
    assert reopen(path).stored.subjects == {}
    (kept,) = aside(path)
    assert kept.read_bytes().startswith(b"this is not")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert kept.name in record.getMessage()
    assert "no message is affected" in record.getMessage()


def test_a_second_damaged_file_does_not_overwrite_the_first(path: Path) -> None:
    for _ in range(3):
        path.write_bytes(os.urandom(5000))
        reopen(path)
    assert len(aside(path)) == 3


def test_open_after_truncation_at_any_page_or_byte(path: Path) -> None:
    filled(path, 300)
    whole = path.read_bytes()
    cuts = {*range(0, len(whole), 1024), *range(1, 200, 13), len(whole) - 1}
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        usable_again(path, f"cut at {cut}")


def test_open_after_bits_flipped_anywhere(path: Path) -> None:
    filled(path, 300)
    whole = path.read_bytes()
    for position in range(0, len(whole), 509):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        usable_again(path, f"flipped at {position}")


@pytest.mark.parametrize("table", ["properties", "subjects", "subject_configs", "group_configs"])
def test_a_missing_table_is_damage(path: Path, table: str) -> None:
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"DROP TABLE {table}")
    connection.close()
    assert reopen(path).stored.subjects == {}
    assert len(aside(path)) == 1


OLD_SCHEMA = """
CREATE TABLE properties (name VARCHAR(64) NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name));
CREATE TABLE subjects (id BIGINT NOT NULL, topic_id BLOB NOT NULL, name VARCHAR(249) NOT NULL,
    PRIMARY KEY (id));
CREATE TABLE subject_configs (subject_id BIGINT NOT NULL, name VARCHAR(255) NOT NULL,
    value TEXT NOT NULL, PRIMARY KEY (subject_id, name));
INSERT INTO properties VALUES ('schema.version', '1');
INSERT INTO subjects VALUES (0, x'000102030405060708090a0b0c0d0e0f', 's0');
INSERT INTO subject_configs VALUES (0, 'a', 'b');
"""
OF_GROUPS = """
CREATE TABLE group_configs (group_name VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL,
    value TEXT NOT NULL, PRIMARY KEY (group_name, name));
INSERT INTO group_configs VALUES ('old', 'consume.mode', 'exclusive');
UPDATE properties SET value = '2';
"""


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_older_schema_loses_what_it_has_or_is_called_damaged(
    path: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(OLD_SCHEMA + (OF_GROUPS if version == 2 else ""))
    connection.close()
    store = Store.open(path)
    assert store.stored.configs == {0: {"a": "b"}}
    assert store.apply([AlterGroup("g", {"consume.mode": "shared"})]) == [None]
    store.close()
    old = {"old": {"consume.mode": "exclusive"}} if version == 2 else {}
    stored = reopen(path).stored
    assert stored.subjects == {0: (TOPIC_ID, "s0")}
    assert stored.configs == {0: {"a": "b"}}
    assert stored.group_configs == {"g": {"consume.mode": "shared"}, **old}
    assert stored.damaged == Damaged()
    assert not aside(path)
    assert not caplog.records


def changed(path: Path, *statements: str) -> Stored:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return reopen(path).stored


def test_a_row_changed_behind_our_back_is_used(path: Path) -> None:
    store = Store.open(path)
    store.apply([KEPT, AlterSubject(1, {"segment.ms": "9"}), PutSubject(2, TOPIC_ID, "whole")])
    store.apply([AlterGroup("g", {"consume.mode": "exclusive", "lease.max.records": "7"})])
    store.close()
    stored = changed(path, "UPDATE subject_configs SET value = '4' WHERE name = 'retention.ms'")
    assert stored.configs == {1: {"segment.ms": "9"}}
    assert stored.damaged == Damaged(configs={1: {"retention.ms": "4"}})
    not_text = "CAST(x'b8ff' AS TEXT)"
    stored = changed(
        path, f"UPDATE group_configs SET value = {not_text} WHERE name LIKE 'consume%'"
    )
    assert stored.group_configs == {"g": {"lease.max.records": "7"}}
    assert [*stored.damaged.group_configs["g"]] == ["consume.mode"]
    assert stored.subjects.keys() == {1, 2}


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM subject_configs WHERE name = 'retention.ms'",
        "UPDATE subject_configs SET subject_id = 3 WHERE name = 'retention.ms'",
        "UPDATE subjects SET name = 'kepu' WHERE id = 1",
        "UPDATE subjects SET topic_id = 'text' WHERE id = 1",
        "UPDATE subjects SET checksum = NULL WHERE id = 1",
    ],
)
def test_a_config_row_that_is_gone_or_a_damaged_subject_goes_unnoticed(
    path: Path, damage: str
) -> None:
    store = Store.open(path)
    store.apply([KEPT, PutSubject(2, TOPIC_ID, "whole")])
    store.close()
    stored = changed(path, damage)
    assert stored.damaged.subjects == {1}
    assert stored.subjects == {2: (TOPIC_ID, "whole")}
    assert not aside(path)


def test_a_damaged_schema_version_stops_the_start(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(path)
    assert changed(path, "UPDATE properties SET value = '7'").configs == {0: {"a": "b"}}
    assert "schema version is damaged (found '7')" in caplog.text
    caplog.clear()
    assert reopen(path).stored.configs == {0: {"a": "b"}}
    assert not caplog.records


def test_no_flipped_bit_of_a_value_is_served(path: Path) -> None:
    store = Store.open(path)
    store.apply([PutSubject(1, TOPIC_ID, "orders", {"retention.ms": "86400000"})])
    store.close()
    whole = path.read_bytes()
    start = whole.index(b"86400000")
    for bit in range(8 * 8):
        damaged = bytearray(whole)
        damaged[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        stored = reopen(path).stored
        assert stored.configs == {}, bit
        assert [*stored.damaged.configs[1]] == ["retention.ms"], bit


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as connection:
        new = ("99", checksum("schema.version", "99"))
        connection.execute("UPDATE properties SET value = ?, checksum = ?", new)
    connection.close()
    with pytest.raises(StoreError, match="schema version 99"):
        Store.open(path)
    assert not aside(path)


def test_a_folder_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        Store.open(tmp_path / "nowhere" / "meta.db")


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    odd = tmp_path / "a ?b=c&d#%25"
    odd.mkdir()
    filled(odd / "meta.db")
    assert (odd / "meta.db").exists()


def test_the_schema_can_be_created_in_postgresql() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    created = [str(CreateTable(table).compile(dialect=dialect)) for table in METADATA.sorted_tables]
    assert any("topic_id BYTEA NOT NULL" in text for text in created)
    assert all("SERIAL" not in text for text in created)


def test_statements_compile_for_postgresql(path: Path) -> None:
    """What is executed on SQLite, as PostgreSQL would get it: no statement of one dialect only."""
    statements: list[sa.Executable] = []
    store = Store.open(path)
    sa.event.listen(store._engine, "before_execute", lambda _c, s, *_: statements.append(s))
    store.apply([KEPT, AlterSubject(1, {"a": "b", "c": None}), DeleteSubject(1)])
    store.apply([AlterGroup("g", {"a": "b", "c": None})])
    store.replace([1], [KEPT])
    store.close()
    assert len(statements) > 5
    for statement in statements:
        assert isinstance(statement, sa.ClauseElement)
        statement.compile(dialect=postgresql.dialect())  # type: ignore[no-untyped-call]
