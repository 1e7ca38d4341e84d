"""Messages that retention takes before they are delivered again: lost, or while the broker stands still."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.actions import EXPIRED, Action
from kumquat.core.delivery.dead_letters import service
from kumquat.core.delivery.dead_letters.letters import origin_of
from kumquat.core.delivery.dead_letters.tests.rig import Rig
from kumquat.core.delivery.dead_letters.tests.test_letters import DLQ, run
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.tests.power import Fault

PULL = 1 << 24


async def failed(it: Rig, count: int) -> Subject:
    """Every other message of subject s waits for a retry in a year; a message and its batch are one."""
    for base in range(0, 2 * count, 500):
        await it.produce("s", *[b"v%d" % at for at in range(base, min(2 * count, base + 500))])
    subject, gid = it.subject("s"), it.group("g")
    due = it.actions.now_ms() + 365 * 86_400_000
    it.append(
        [
            kinds.Share(gid, subject.id, 0),
            kinds.Slot(gid, subject.id, 1, "m", PULL),
            kinds.Pull(gid, subject.id, 1, PULL, [[0, 2 * count, 1]]),
            kinds.Retry(gid, subject.id, 1, [[2 * i, 1, 2, due] for i in range(count)]),
        ]
    )
    await it.actions.wait_synced()
    return subject


async def retention(it: Rig, subject: Subject) -> None:
    """All of the subject is too old."""
    it.log.before_expiry = it.dead.expire
    subject.config = type(subject.config)(1 << 20, 0, -1)
    await it.log.apply_retention()


def test_all_that_waits_becomes_letters_some_at_a_time(tmp_path: Path) -> None:
    """Thousands in one action stop the broker, a million for many seconds."""

    async def test(it: Rig) -> None:
        subject = await failed(it, 3_500)
        most, append = 0, it.append

        def watched(changes: Sequence[Action]) -> int:
            nonlocal most
            ranges = [len(each.ranges) for each in changes if isinstance(each, kinds.Doom)]
            most = max([most, *ranges])
            return append(changes)

        it.dead._append = watched
        await retention(it, subject)
        assert subject.earliest == subject.readable_end == 7_000
        letters = it.letters(DLQ)
        assert [each.value for each in letters] == [b"v%d" % (2 * i) for i in range(3_500)]
        assert {origin_of(each).reason for each in letters} == {EXPIRED}
        assert most <= 1_000
        assert not it.open("g", "s")

    run(tmp_path, test, segment_bytes=8 << 20, index_max_entries=10_000)


def test_what_fails_while_retention_waits_for_letters_becomes_one_too(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        subject = await failed(it, 1)
        gid, make = it.group("g"), it.make

        async def fails_meanwhile(name: str, origin: Subject) -> Subject:
            it.append([kinds.Retry(gid, subject.id, 1, [[1, 1, 2, it.actions.now_ms() + 60_000]])])
            return await make(name, origin)

        it.dead._make = fails_meanwhile
        await retention(it, subject)
        assert [each.value for each in it.letters(DLQ)] == [b"v0", b"v1"]

    run(tmp_path, test)


def test_what_is_about_to_get_its_letter_anyway_keeps_its_value(tmp_path: Path) -> None:
    """It was rejected a moment ago: there is nothing left to doom, and yet something to wait for."""

    async def test(it: Rig) -> None:
        await it.produce("s", b"value")
        it.doom("g", "s", [[0, 1, 1]], kinds.REJECTED)
        await retention(it, it.subject("s"))
        assert [each.value for each in it.letters(DLQ)] == [b"value"]

    run(tmp_path, test)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_EXPIRY_SECONDS", 0.05)


@pytest.mark.usefixtures("impatient")
def test_letters_that_cannot_be_written_do_not_stop_retention_and_lose_nothing_but_values(
    tmp_path: Path,
) -> None:
    async def test(it: Rig) -> None:
        subject = await failed(it, 1_200)
        it.refuse = "not now"
        await retention(it, subject)
        assert subject.earliest == subject.readable_end
        assert it.open("g", "s") == {2 * i for i in range(1_200)}
        it.refuse = ""
        await it.written("g", "s")
        letters = it.letters(DLQ)
        assert [origin_of(each).sequence for each in letters] == [2 * i for i in range(1_200)]

    run(tmp_path, test, segment_bytes=8 << 20, index_max_entries=10_000)


@pytest.mark.usefixtures("impatient")
def test_an_action_log_that_cannot_be_written_does_not_stop_retention(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk may be full, and retention is what frees it."""

    async def test(it: Rig) -> None:
        subject = await failed(it, 1)
        it.files.fail(Fault("pwritev", errno.ENOSPC, name="unnamed", times=None))
        await retention(it, subject)
        assert subject.earliest == subject.readable_end
        assert "deleted by retention without a dead letter" in caplog.text
        it.files.heal()

    run(tmp_path, test)
