"""The running action log, on real files: what waits, what a stop says, what a restart finds."""

import errno
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.state import JUMP
from kumquat.core.errors import StartError, StorageError
from kumquat.core.logs.actions.service import ActionService
from kumquat.core.logs.actions.tests.driver import DATA, shape
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.dump import dump
from kumquat.core.logs.tests.power import FakeFiles, Fault, HeldSync

GROUP: list[Action] = [actions.Group(1, "g"), actions.Share(1, 5, 0)]
MEMBER = {
    "id": "m",
    "generation": 1,
    "kind": "eager",
    "client_id": "c",
    "host": "h",
    "session_ms": 1,
    "rebalance_ms": 1,
    "holds": {5: 1},
}


@asynccontextmanager
async def service(
    directory: Path, files: Files | None = None, segment_bytes: int = 20_000
) -> AsyncIterator[ActionService]:
    opened = ActionService.open(directory, files, segment_bytes=segment_bytes)
    async with trio.open_nursery() as nursery:
        await nursery.start(opened.run)
        yield opened
        nursery.cancel_scope.cancel()


def run(story: Callable[[], Awaitable[None]]) -> None:
    trio.run(story)


def share(log: ActionService) -> None:
    slot, begin = log.groups.next_slot(5)
    log.append_nowait(GROUP)
    log.append_nowait([actions.Slot(1, 5, slot, "m", begin), actions.Member(1, MEMBER)])


def pull(log: ActionService, count: int) -> int:
    group, pulled = log.groups.slots[5][1]
    cursor = group.progress[5].cursor
    return log.append_nowait([actions.Pull(1, 5, 1, pulled.next, [[cursor, count, 1]])])


def test_a_restart_finds_what_was_done_and_a_clean_stop_leaps_nowhere(tmp_path: Path) -> None:
    async def story() -> None:
        async with service(tmp_path) as log:
            share(log)
            pull(log, 10)
            await log.wait_synced(log.append_nowait([actions.Ack(1, 5, 1, (1 << 24) + 4)]))
            before, following = shape(log.groups), log.groups.slots[5][1][1].next
        async with service(tmp_path) as log:
            assert shape(log.groups) == before
            assert log.groups.slots[5][1][1].next == following
            assert not log.groups.clean

    run(story)


def test_what_was_synced_is_there_after_the_process_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        files = FakeFiles(DATA)
        async with service(DATA, files) as log:
            share(log)
            await log.wait_synced(pull(log, 10))
            left = files.after_kill()
        async with service(DATA, left) as log:
            following = log.groups.slots[5][1][1].next
            assert following == (1 << 24) + 10 + JUMP

    run(story)


def test_nobody_is_told_of_a_commit_before_it_is_synced(tmp_path: Path) -> None:
    async def story() -> None:
        files = FakeFiles(DATA)
        async with service(DATA, files) as log:
            share(log)
            await log.wait_synced()
            files.during_sync = held = HeldSync()
            position = pull(log, 10)
            await trio.to_thread.run_sync(held.started.wait)
            told: list[object] = []
            log.call_when_synced(position, told.append)
            later = log.append_nowait([actions.Ack(1, 5, 1, (1 << 24) + 4)])
            log.call_when_synced(later, told.append)
            await trio.testing.wait_all_tasks_blocked()
            assert not told
            assert log.groups.slots[5][1][1].unacked == 6, "what is appended counts at once"
            files.during_sync = None
            held.release()
            await log.wait_synced(later)
            assert told == [None, None]
            log.call_when_synced(position, told.append)
            assert len(told) == 3

    run(story)


def test_hand_outs_that_nobody_waits_for_cost_no_sync_until_someone_does(tmp_path: Path) -> None:
    async def story() -> None:
        async with service(tmp_path) as log:
            share(log)
            await log.wait_synced()
            syncs = log.statistics().syncs
            group, pulled = log.groups.slots[5][1]
            for number in range(20):
                part = [[number * 5, 5, 1]]
                end = log.append_nowait(
                    [actions.Pull(group.id, 5, 1, pulled.next, part)], urgent=False
                )
            await trio.testing.wait_all_tasks_blocked()
            assert log.statistics().syncs == syncs
            assert log.statistics().bytes_unsynced > 0
            await log.wait_synced(end)
            assert log.statistics().bytes_unsynced == 0

    run(story)


def test_a_failed_sync_is_told_to_who_waits_and_to_who_comes_later(tmp_path: Path) -> None:
    async def story() -> None:
        files = FakeFiles(DATA)
        async with service(DATA, files) as log:
            share(log)
            await log.wait_synced()
            files.fail(Fault("fdatasync", errno.EIO, times=None))
            position = pull(log, 10)
            with pytest.raises(StorageError, match="fenced"):
                await log.wait_synced(position)
            with pytest.raises(StorageError, match="fenced"):
                pull(log, 10)
            assert log.statistics().fenced

    run(story)


def test_snapshots_are_completed_and_old_segments_deleted_by_themselves(tmp_path: Path) -> None:
    async def story() -> None:
        async with service(tmp_path, segment_bytes=3_000) as log:
            share(log)
            for gid in range(2, 200):
                log.append_nowait(
                    [actions.Group(gid, f"g{gid}"), actions.Commit(gid, 9, 1, -1, "")]
                )
            for _ in range(600):
                await log.wait_synced(pull(log, 3))
                log.append_nowait([actions.Ack(1, 5, 1, log.groups.slots[5][1][1].next)])
            # Until the snapshot is synced nothing is obsolete, and files are deleted in a thread.
            with trio.fail_after(60):
                while len(list((tmp_path / "actions").glob("*.actions"))) > 2:
                    await trio.lowlevel.checkpoint()
            assert log.statistics().segments == 2
            before = shape(log.groups)
        opened = ActionService.open(tmp_path)
        assert shape(opened.groups) == before
        opened.log.close()

    run(story)


def test_a_closed_log_takes_nothing_and_leaves_nobody_waiting(tmp_path: Path) -> None:
    async def story() -> None:
        async with service(tmp_path) as log:
            share(log)
        with pytest.raises(StorageError, match="closed"):
            pull(log, 1)
        with pytest.raises(StorageError, match="closed"):
            await log.wait_synced(1 << 40)

    run(story)


def test_a_log_that_cannot_be_opened_says_why() -> None:
    files = FakeFiles(DATA)
    files.fail(Fault("reserve", errno.ENOSPC, times=None))
    with pytest.raises(StartError, match="No space left"):
        ActionService.open(DATA, files)


def test_a_stop_while_the_disk_is_slow_syncs_all_that_was_appended(tmp_path: Path) -> None:
    async def story() -> None:
        files = FakeFiles(DATA)
        async with service(DATA, files) as log:
            share(log)
            files.during_sync = held = HeldSync()
            pull(log, 10)
            await trio.to_thread.run_sync(held.started.wait)
            pull(log, 5)
            held.release()
        opened = ActionService.open(DATA, files.after_power_cut(Random(0), "nothing"))
        assert opened.groups.slots[5][1][1].unacked == 15
        assert opened.groups.floor == 1 << 24, "the stop was clean"

    run(story)


def test_a_segment_can_be_looked_at(tmp_path: Path) -> None:
    async def story() -> None:
        async with service(tmp_path) as log:
            share(log)
            pull(log, 10)

    run(story)
    (path,) = (tmp_path / "actions").glob("*.actions")
    out = io.StringIO()
    assert dump(path, out) == 0
    text = out.getvalue()
    assert 'group 1 "g"' in text
    assert "pull 1 5 1 16777216 [[0,10,1]]" in text
    assert "stopped" in text
    assert ", 0 bad" in text
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    out = io.StringIO()
    assert dump(path, out) == 1
    assert "BAD" in out.getvalue()
    assert "stopped" in out.getvalue(), "what lies behind the damage is not shown"
