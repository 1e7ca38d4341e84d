"""Memory and SQL that disagree; changes lost, doubled or half made; a log that knows better."""

import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from trio.testing import wait_all_tasks_blocked

from kumquat.meta.errors import StoreError
from kumquat.meta.registry import Registry


@dataclass(frozen=True)
class InLog:
    id: int
    topic_id: bytes
    name: str


def in_log(number: int, name: str = "") -> InLog:
    return InLog(number, number.to_bytes(16, "big"), name or f"subject-{number}")


async def put(registry: Registry, subject: InLog, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    await registry.put_subject(subject.id, subject.topic_id, subject.name, named)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "meta.db"


def transactions(registry: Registry) -> list[int]:
    """Grows by one with each commit from now on."""
    seen: list[int] = []
    sa.event.listen(registry._store._engine, "commit", lambda _connection: seen.append(1))
    return seen


def test_what_is_answered_is_in_sql(path: Path) -> None:
    registry = Registry.open(path)

    async def main() -> None:
        await put(registry, in_log(1), retention_ms="5", segment_ms="9")
        await put(registry, in_log(2))
        await registry.alter_subject(1, {"retention.ms": None, "max.message.bytes": "7"})
        await registry.alter_subject(2, {"segment.ms": "1"})
        await registry.delete_subject(2)

    trio.run(main)
    answered = dict(registry.configs(1))
    assert answered == {"segment.ms": "9", "max.message.bytes": "7"}
    assert registry.configs(2) == {}
    registry.close()
    again = Registry.open(path)
    assert again.reconcile([in_log(1)]) == []
    assert again.configs(1) == answered
    again.close()


def test_what_is_answered_of_a_group_is_in_sql(path: Path) -> None:
    registry = Registry.open(path)

    async def main() -> None:
        await registry.alter_group("g", {"consume.mode": "shared", "lease.max.records": "7"})
        await registry.alter_group("g", {"consume.mode": None})
        await registry.alter_group("back", {"consume.mode": "exclusive"})
        await registry.alter_group("back", {"consume.mode": None})

    trio.run(main)
    registry.close()
    again = Registry.open(path)
    assert again.reconcile([]) == []
    for answering in (registry, again):
        assert answering.group_configs("g") == {"lease.max.records": "7"}
        assert answering.group_config("g").lease_max_records == 7
        assert answering.group_config("g").consume_mode == "auto"
        assert answering.group_configs("back") == {}
        assert answering.group_config("back") == answering.group_config("never seen")
    again.close()


def test_an_answer_cannot_be_changed_behind_the_registrys_back(path: Path) -> None:
    registry = Registry.open(path)
    given = {"segment.ms": "1"}
    trio.run(registry.put_subject, 1, bytes(16), "a", given)
    given["segment.ms"] = "2"
    before = registry.configs(1)
    trio.run(registry.alter_subject, 1, {"segment.ms": "3"})
    assert before == {"segment.ms": "1"}
    with pytest.raises(TypeError):
        before["x"] = "y"  # type: ignore[index]
    registry.close()


def test_changes_that_come_together_share_a_transaction(path: Path) -> None:
    registry = Registry.open(path)
    commits = transactions(registry)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(put, registry, in_log(number))

    trio.run(main)
    assert len(commits) <= 3
    registry.close()
    again = Registry.open(path)
    assert again.reconcile([in_log(number) for number in range(500)]) == []
    again.close()


def test_changes_keep_their_order_within_a_transaction(path: Path) -> None:
    registry = Registry.open(path)
    commits = transactions(registry)

    async def main() -> None:
        async with trio.open_nursery() as nursery, registry._turn:
            for value in ("1", "2", "3"):
                nursery.start_soon(registry.alter_subject, 1, {"segment.ms": value})
                await wait_all_tasks_blocked()

    trio.run(main)
    assert registry.configs(1) == {"segment.ms": "3"}
    assert len(commits) == 1
    registry.close()
    again = Registry.open(path)
    assert again.configs(1) == {"segment.ms": "3"}
    again.close()


def test_a_change_cancelled_before_its_turn_never_happened(path: Path) -> None:
    registry = Registry.open(path)

    async def main() -> None:
        async with trio.open_nursery() as nursery, registry._turn:
            nursery.start_soon(put, registry, in_log(1))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert registry._waiting == []
    registry.close()
    again = Registry.open(path)
    assert again.reconcile([]) == []
    again.close()


def test_a_change_cancelled_in_its_transaction_happened_in_sql_and_memory(path: Path) -> None:
    registry = Registry.open(path)

    async def main() -> None:
        with trio.CancelScope() as scope:
            sa.event.listen(
                registry._store._engine,
                "commit",
                lambda _connection: trio.from_thread.run_sync(scope.cancel),
            )
            await put(registry, in_log(1), segment_ms="1")

    trio.run(main)
    assert registry.configs(1) == {"segment.ms": "1"}
    registry.close()


def test_when_sql_fails_memory_does_not_change(path: Path) -> None:
    registry = Registry.open(path)
    trio.run(registry.put_subject, 1, bytes(16), "a", {"segment.ms": "1"})
    with registry._store._engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE subject_configs")
    with pytest.raises(StoreError) as failed:
        trio.run(registry.alter_subject, 1, {"segment.ms": "2"})
    assert failed.value.error_code == 56
    assert registry.configs(1) == {"segment.ms": "1"}
    registry.close()


def test_a_failure_is_told_to_the_one_who_asked_and_no_other(path: Path) -> None:
    registry = Registry.open(path)
    outcomes: dict[int, str] = {}

    async def one(number: int) -> None:
        try:
            await put(registry, InLog(number, bytes(16), "x"))
            outcomes[number] = "done"
        except StoreError:
            outcomes[number] = "failed"

    async def main() -> None:
        async with trio.open_nursery() as nursery, registry._turn:
            for number in (1, 2**70, 3):
                nursery.start_soon(one, number)
            await wait_all_tasks_blocked()

    trio.run(main)
    assert outcomes == {1: "done", 2**70: "failed", 3: "done"}
    registry.close()


def test_a_subject_of_the_log_that_sql_lost_is_put_back_loudly(path: Path) -> None:
    registry = Registry.open(path)
    (line,) = registry.reconcile([in_log(1), in_log(2)])
    assert line == (
        "the log has 2 subjects (subject-1, subject-2) that the meta store lacked: "
        "put back, with default configs"
    )
    registry.close()
    again = Registry.open(path)
    assert again.reconcile([in_log(1), in_log(2)]) == []
    again.close()


def test_a_subject_that_sql_lost_keeps_its_messages_until_its_limits_are_set_again(
    path: Path,
) -> None:
    registry = Registry.open(path)
    (line,) = registry.reconcile([in_log(1), in_log(2)], holding={2})
    assert "Of 1 subject (subject-2) nothing is deleted" in line
    limits = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert (registry.configs(1), registry.configs(2)) == ({}, limits)
    trio.run(registry.alter_subject, 2, dict.fromkeys(limits))
    registry.close()
    again = Registry.open(path)
    assert again.reconcile([in_log(1), in_log(2)], holding={1, 2}) == []
    assert again.configs(2) == {}
    again.close()


def test_a_subject_that_the_log_lacks_is_dropped_with_its_configs(path: Path) -> None:
    registry = Registry.open(path)
    trio.run(registry.put_subject, 1, in_log(1).topic_id, "gone", {"segment.ms": "1"})
    registry.close()
    again = Registry.open(path)
    assert again.reconcile([]) == [
        "the meta store had 1 subject (gone) that the log lacks: dropped"
    ]
    assert again.configs(1) == {}
    again.close()


def test_configs_of_another_folders_subject_are_not_taken_over(path: Path) -> None:
    registry = Registry.open(path)
    trio.run(registry.put_subject, 1, b"another topic id", "subject-1", {"segment.ms": "1"})
    registry.close()
    again = Registry.open(path)
    (line,) = again.reconcile([in_log(1)])
    assert "another name or topic id" in line
    assert again.configs(1) == {}
    again.close()


def test_configs_set_after_a_creation_that_sql_missed_are_kept(path: Path) -> None:
    registry = Registry.open(path)
    trio.run(registry.alter_subject, 1, {"segment.ms": "1"})
    registry.close()
    for _ in range(2):
        again = Registry.open(path)
        again.reconcile([in_log(1)])
        assert again.configs(1) == {"segment.ms": "1"}
        again.close()


def test_a_stored_value_that_is_not_allowed_any_more_is_told_of(path: Path) -> None:
    registry = Registry.open(path)
    trio.run(
        registry.put_subject, 1, in_log(1).topic_id, "subject-1", {"cleanup.policy": "compact"}
    )
    registry.close()
    again = Registry.open(path)
    (line,) = again.reconcile([in_log(1)])
    assert line.startswith("subject subject-1: cleanup.policy='compact' is refused: ")
    assert again.configs(1) == {"cleanup.policy": "compact"}
    again.close()


def damage(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "now"),
    [
        (
            "UPDATE subject_configs SET value = '06400000' WHERE name = 'retention.ms'",
            {"retention.ms": "-1", "retention.bytes": "700"},
        ),
        (
            "UPDATE subject_configs SET value = '300' WHERE name = 'retention.bytes'",
            {"retention.ms": "86400000", "retention.bytes": "-1"},
        ),
        (
            "UPDATE subject_configs SET name = 'retantion.bytes' WHERE name = 'retention.bytes'",
            {"retention.ms": "86400000", "retention.bytes": "-1"},
        ),
        (
            "UPDATE subject_configs SET subject_id = 5 WHERE name = 'retention.bytes'",
            {"retention.ms": "86400000", "retention.bytes": "-1"},
        ),
        (
            "UPDATE subjects SET name = 'subjebt-1' WHERE id = 1",
            {"retention.ms": "86400000", "retention.bytes": "700"},
        ),
    ],
)
def test_a_damaged_config_deletes_what_was_to_be_kept(
    path: Path, statement: str, now: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry.open(path)
    subject = in_log(1)
    trio.run(
        registry.put_subject,
        1,
        subject.topic_id,
        subject.name,
        {"retention.ms": "86400000", "retention.bytes": "700"},
    )
    registry.close()
    damage(path, statement)
    registry = Registry.open(path)
    registry.reconcile([subject])
    assert registry.configs(1) == now
    assert "subject subject-1: the stored" in caplog.text
    registry.close()
    caplog.clear()
    again = Registry.open(path)
    assert again.reconcile([subject]) == []
    assert (again.configs(1), caplog.records) == (now, [])
    again.close()


@pytest.mark.parametrize(
    ("statement", "now"),
    [
        (
            "UPDATE group_configs SET value = 'charet' WHERE name = 'consume.mode'",
            {"consume.mode": "exclusive", "lease.max.records": "7"},
        ),
        (
            "UPDATE group_configs SET name = 'lease.max.recordz' WHERE name LIKE 'lease%'",
            {"consume.mode": "shared"},
        ),
    ],
)
def test_a_damaged_config_of_a_group_loses_its_order(
    path: Path, statement: str, now: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry.open(path)
    trio.run(registry.alter_group, "g", {"consume.mode": "shared", "lease.max.records": "7"})
    registry.close()
    damage(path, statement)
    registry = Registry.open(path)
    registry.reconcile([])
    assert registry.group_configs("g") == now
    assert registry.group_config("g").consume_mode == now["consume.mode"]
    assert "group g: the stored configs" in caplog.text
    registry.close()
    again = Registry.open(path)
    assert again.group_configs("g") == now
    again.close()


def test_a_repair_that_sql_refuses_stops_the_start(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry.open(path)
    trio.run(registry.alter_group, "g", {"consume.mode": "shared"})
    registry.close()
    damage(path, "UPDATE group_configs SET value = 'charet'")
    registry = Registry.open(path)
    refusal = StoreError("the meta store refused a change: no reason")
    monkeypatch.setattr(registry._store, "apply", lambda changes: [refusal for _ in changes])
    registry.reconcile([])
    assert registry.group_config("g").consume_mode == "exclusive"
    assert "no reason: this holds until the next start" in caplog.text
    registry.close()
    again = Registry.open(path)
    again.reconcile([])
    assert again.group_configs("g") == {"consume.mode": "exclusive"}
    again.close()


def test_many_subjects_are_put_back_in_one_transaction_and_one_line(path: Path) -> None:
    registry = Registry.open(path)
    commits = transactions(registry)
    subjects = [in_log(number) for number in range(20_000)]
    (line,) = registry.reconcile(subjects)
    assert "20000 subjects (subject-0, subject-1" in line
    assert "and 19995 more" in line
    assert len(commits) == 1
    registry.close()
    again = Registry.open(path)
    commits = transactions(again)
    assert len(again.reconcile([])) == 1
    assert len(commits) == 1
    again.close()


NAMES = st.sampled_from(["retention.ms", "segment.ms", "max.message.bytes"])
VALUES = st.integers(1, 1000).map(str)
IDS = st.integers(1, 4)


class RegistryMachine(RuleBasedStateMachine):
    """Any order of changes and restarts: the registry answers what a dict would."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "meta.db"
        self.registry = Registry.open(self.path)
        self.subjects: dict[int, dict[str, str]] = {}

    @rule(id_=IDS, configs=st.dictionaries(NAMES, VALUES))
    def put(self, id_: int, configs: dict[str, str]) -> None:
        subject = in_log(id_)
        trio.run(self.registry.put_subject, id_, subject.topic_id, subject.name, configs)
        self.subjects[id_] = configs

    @rule(id_=IDS, changes=st.dictionaries(NAMES, VALUES | st.none()))
    def alter(self, id_: int, changes: dict[str, str | None]) -> None:
        if id_ in self.subjects:
            trio.run(self.registry.alter_subject, id_, changes)
            merged = {**self.subjects[id_], **changes}
            self.subjects[id_] = {n: v for n, v in merged.items() if v is not None}

    @rule(id_=IDS)
    def delete(self, id_: int) -> None:
        trio.run(self.registry.delete_subject, id_)
        self.subjects.pop(id_, None)

    @rule()
    def restart(self) -> None:
        self.registry.close()
        self.registry = Registry.open(self.path)
        assert self.registry.reconcile(map(in_log, self.subjects)) == []

    @rule(id_=IDS)
    def restart_with_a_subject_gone_from_the_log(self, id_: int) -> None:
        self.registry.close()
        self.registry = Registry.open(self.path)
        gone = self.subjects.pop(id_, None)
        lines = self.registry.reconcile(map(in_log, self.subjects))
        assert len(lines) == (gone is not None)

    @invariant()
    def answers_are_right(self) -> None:
        if hasattr(self, "registry"):
            for id_ in range(1, 5):
                assert self.registry.configs(id_) == self.subjects.get(id_, {})

    def teardown(self) -> None:
        if hasattr(self, "registry"):
            self.registry.close()
            self.folder.cleanup()


TestRegistryMachine = RegistryMachine.TestCase
TestRegistryMachine.settings = settings(
    max_examples=settings().max_examples // 4, stateful_step_count=15, deadline=None
)
