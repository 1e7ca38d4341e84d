"""A flipped bit in `meta.db` that refuses the start, is served as a config, or goes unnoticed.

SQLite guards its pages against nothing, so any bit may be wrong: in a value, in a key, in an index, in the
schema or in the file's header. Whatever it is, the broker starts, each config is the true one or the
one that does no harm, what was lost is reported, and the store takes changes.
"""

import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from kumquat.meta import store
from kumquat.meta.registry import Registry

BROKER = ""
SUBJECTS = {2: {"retention.ms": "86400000"}, 3: {"retention.bytes": "1000"}}
GROUPS = {
    "orders-group": {"consume.mode": "shared", "lease.max.records": "77"},
    "in-order": {"consume.mode": "exclusive"},
    BROKER: {"num.io.threads": "8"},
}
SAFE = [("retention.ms", "-1"), ("retention.bytes", "-1")]
SAFE_OF_GROUPS = [("consume.mode", "exclusive")]
EACH = 7  # of the bytes that are not zero, every seventh: all of them take a minute


@dataclass(frozen=True)
class InLog:
    id: int

    @property
    def topic_id(self) -> bytes:
        return bytes([self.id]) * 16

    @property
    def name(self) -> str:
        return f"subject-{self.id}"


IN_LOG = [InLog(id_) for id_ in SUBJECTS]
Served = tuple[dict[int, dict[str, str]], dict[str, dict[str, str]]]


async def fill(registry: Registry) -> None:
    async with trio.open_nursery() as nursery:
        for one in IN_LOG:
            nursery.start_soon(
                registry.put_subject, one.id, one.topic_id, one.name, SUBJECTS[one.id]
            )
        for group, configs in GROUPS.items():
            nursery.start_soon(registry.alter_group, group, configs)


@pytest.fixture
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of syncs would be most of the time, and no machine crashes here."""
    prepare = store._prepare_sqlite

    def prepare_fast(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        prepare(connection, record)
        connection.cursor().execute("PRAGMA synchronous=OFF")

    monkeypatch.setattr(store, "_prepare_sqlite", prepare_fast)


@pytest.fixture
def path(tmp_path: Path, no_syncs: None) -> Path:
    path = tmp_path / "meta.db"
    registry = Registry.open(path)
    trio.run(fill, registry)
    registry.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """The lines that an operator sees, as a UTF-8 file would take them."""
    seen: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage().encode().decode())

    handler = Lines(logging.WARNING)
    logging.getLogger("kumquat.meta").addHandler(handler)
    yield seen
    logging.getLogger("kumquat.meta").removeHandler(handler)


def served(registry: Registry) -> Served:
    """Of whatever subject and group there are configs, so of those that a flip made up too."""
    subjects = {id_: dict(registry.configs(id_)) for id_ in registry._configs}
    return subjects, {name: dict(registry.group_configs(name)) for name in registry._group_configs}


def start(path: Path) -> tuple[Registry, Served]:
    registry = Registry.open(path)
    try:
        registry.reconcile(IN_LOG)
    except BaseException:
        registry.close()
        raise
    return registry, served(registry)


def check(found: Served) -> None:
    subjects, groups = found
    assert subjects.keys() <= SUBJECTS.keys()
    for id_, configs in subjects.items():
        assert all(one in [*SUBJECTS[id_].items(), *SAFE] for one in configs.items()), configs
    for group, configs in groups.items():
        safe = SAFE_OF_GROUPS if group != BROKER else []
        assert all(one in [*GROUPS.get(group, {}).items(), *safe] for one in configs.items()), group


def one_flip(path: Path, octets: bytes, errors: list[str]) -> None:
    for leftover in path.parent.iterdir():
        leftover.unlink()
    path.write_bytes(octets)
    errors.clear()
    registry, first = start(path)
    registry.close()
    check(first)
    assert first == (SUBJECTS, GROUPS) or errors, "lost and not reported"
    registry, second = start(path)
    assert second == first, "the next start serves something else"
    trio.run(fill, registry)
    registry.close()
    errors.clear()
    registry, third = start(path)
    registry.close()
    check(third)
    assert third[0] == SUBJECTS, "a change is lost"
    assert {group: third[1].get(group) for group in GROUPS} == GROUPS, "a change is lost"


def test_a_flipped_bit_refuses_the_start_or_is_served(path: Path, errors: list[str]) -> None:
    whole = path.read_bytes()
    places = [place for place, octet in enumerate(whole) if octet]
    for number, place in enumerate(places[::EACH]):
        bit = 7 if number % 2 else number // 2 % 7  # the highest makes text that is no UTF-8
        damaged = whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
        try:
            one_flip(path, damaged, errors)
        except Exception as error:
            error.add_note(f"bit {bit} of byte {place}: {whole[max(0, place - 12) : place + 4]!r}")
            raise


def test_a_subjects_id_that_became_anothers_costs_more_than_its_row(
    path: Path, errors: list[str]
) -> None:
    row = InLog(3).topic_id + b"subject-3"
    whole = path.read_bytes()
    damaged = whole.replace(b"\x03" + row, b"\x02" + row)
    assert damaged != whole
    one_flip(path, damaged, errors)
    path.write_bytes(damaged)
    registry, (subjects, groups) = start(path)
    registry.close()
    assert (subjects, groups) == (SUBJECTS, GROUPS)
    assert [file.name for file in path.parent.glob("*corrupt*")] == []


@pytest.mark.parametrize(
    ("true", "found", "message"),
    [
        (b"orders-groupconsume", b"orders\xadgroupconsume", "group orders"),
        (b"num.io.threads8", b"num.io.threads9", "broker: the stored configs num.io.threads"),
        (b"checksum BIGINT", b"checksum BIGHNT", "columns of the meta store's tables"),
    ],
)
def test_damage_that_is_repaired_is_reported_again_at_the_next_start(
    path: Path, errors: list[str], true: bytes, found: bytes, message: str
) -> None:
    whole = path.read_bytes()
    assert true in whole
    assert len(true) == len(found)
    path.write_bytes(whole.replace(true, found))
    start(path)[0].close()
    assert any(message in line for line in errors), errors
    assert [file.name for file in path.parent.glob("*corrupt*")] == []
    errors.clear()
    start(path)[0].close()
    assert errors == []


@pytest.mark.parametrize("bit", range(8))
def test_a_header_that_makes_the_file_read_only_refuses_every_change(
    path: Path, errors: list[str], bit: int
) -> None:
    whole = path.read_bytes()
    one_flip(path, whole[:18] + bytes([whole[18] ^ 1 << bit]) + whole[19:], errors)
