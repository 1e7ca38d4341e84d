"""A broker that says it is well when it is not, or asks to be killed when that does not help."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import trio

from kumquat.gateway.metrics.disk import LOOK_SECONDS, STALE_SECONDS, DiskState, least_free
from kumquat.gateway.metrics.health import (
    STUCK_LOOP_SECONDS,
    Check,
    Health,
    live,
    live_by_now,
    ready,
    starting,
    starting_is_live,
)
from kumquat.gateway.net.loop_lag import WINDOW_SECONDS
from kumquat.gateway.tests.harness import IO_ERROR, NO_SPACE, Served, produce, serve

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GIB = 1 << 30


def bad(health: Health) -> dict[str, str]:
    """Checks that are not ok, and what they say."""
    return {check.name: check.text for check in health.checks if not check.ok}


def test_a_broker_that_is_well_is_not_ready(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.settled()
        assert bad(ready(served.broker)) == {}
        assert bad(live(served.broker)) == {}
        payload = ready(served.broker).payload()
        assert payload["ok"] is True
        assert payload["status"] == "ok"
        assert {
            "name": "stopping",
            "ok": True,
            "status": "ok",
            "text": "the broker is not stopping",
        } in (payload["checks"])

    serve(check, tmp_path, health_disk_min_free_bytes=0)


def test_a_log_that_is_fenced_is_not_told_or_kills_the_broker(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        broker = served.broker
        await served.create("orders")
        async with served.client() as client:
            served.files.sync_error = IO_ERROR
            await client.call(produce("orders", b"a"), 9)
        found = ready(broker)
        assert not found.ok
        assert "check the disk" in bad(found)["message_log"]
        assert "action_log" not in bad(found)
        assert live(broker).ok, "reads go on"
        broker.actions.log.commit.fence(OSError(errno.EIO, "trouble"))
        assert "action_log" in bad(ready(broker))
        assert "restart" in bad(live(broker))["logs"]

    serve(check, tmp_path)


def test_a_log_whose_writes_fail_says_so_until_they_work(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        broker = served.broker
        await served.create("orders")
        async with served.client() as client:
            served.files.write_error = NO_SPACE
            await client.call(produce("orders", b"a"), 9)
            served.files.write_error = None
            await client.call(produce("orders", b"a"), 9)  # a small write may still fit
        found = ready(broker)
        assert found.ok, "readers go on"
        assert found.status == "warning"
        assert "No space left on device" in bad(found)["message_log"]

    serve(check, tmp_path, health_disk_min_free_bytes=0)


def test_a_broker_is_killed_since_it_was_busy(tmp_path: Path) -> None:
    """A probe that waited while the loop did not turn comes before the task that watches the loop."""

    async def check(served: Served) -> None:
        broker = served.broker
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.lag.run)
            await served.settled()
            served.clock.jump(1)
            await served.settled()
            served.clock.jump(STUCK_LOOP_SECONDS + 5)
            assert not live(broker).ok, "it does not know yet that the loop turns"
            assert (await live_by_now(broker)).ok
            nursery.cancel_scope.cancel()
        served.clock.jump(STUCK_LOOP_SECONDS + 5)
        assert not (await live_by_now(broker)).ok, "the task is gone"

    serve(check, tmp_path)


def test_a_stop_is_not_told(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        served.broker.stop()
        assert "stopping" in bad(ready(served.broker))
        assert live(served.broker).ok

    serve(check, tmp_path)


def test_a_start_is_not_told(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        served.broker.started = False
        assert "started" in bad(ready(served.broker))
        assert live(served.broker).ok

    serve(check, tmp_path)
    assert not starting(7).ok
    assert "for 7 s" in bad(starting(7))["started"]
    assert starting_is_live().ok


def test_a_disk_is_full_before_anybody_says_so(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        broker = served.broker
        await served.settled()
        assert broker.disk.state is not None
        assert broker.disk.state.free > 0
        broker.disk.state = DiskState(1_000, 100 * GIB, trio.current_time())
        assert "1,000 bytes are free" in bad(ready(broker))["disk"]
        assert not ready(broker).ok
        broker.disk.state = DiskState(3 * GIB, 100 * GIB, trio.current_time())
        assert ready(broker).ok
        broker.disk.state = DiskState(0, 0, trio.current_time(), "Input/output error")
        assert "Input/output error" in bad(ready(broker))["disk"]
        broker.disk.state = DiskState(3 * GIB, 100 * GIB, trio.current_time() - STALE_SECONDS - 1)
        assert "has not answered" in bad(ready(broker))["disk"]

    serve(check, tmp_path)


def test_a_folder_that_is_gone_ends_the_broker(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        served.broker.disk._directory = tmp_path / "gone"
        await served.broker.disk.look()
        assert "No such file" in bad(ready(served.broker))["disk"]

    serve(check, tmp_path)


def test_a_look_at_the_disk_that_fails_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        broker = served.broker
        await served.settled()
        before = broker.disk.state

        async def fails() -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(broker.disk, "look", fails)
            served.clock.jump(LOOK_SECONDS)
            await served.settled()
            assert broker.disk.state is before
            served.clock.jump(STALE_SECONDS)
            assert "has not answered" in bad(ready(broker))["disk"]
            await served.settled()
        served.clock.jump(LOOK_SECONDS)
        await served.settled()
        assert "disk" not in bad(ready(broker))

    serve(check, tmp_path, health_disk_min_free_bytes=0)


def test_a_small_disk_is_full_when_it_is_empty() -> None:
    assert least_free(None, GIB, 10 * GIB) == GIB
    assert least_free(None, GIB, 1000 * GIB) == 2 * GIB
    assert least_free(7, GIB, 10 * GIB) == 7


def test_a_long_step_of_the_loop_is_not_told_or_sends_clients_away(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        broker = served.broker
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.lag.run)
            await served.settled()
            served.clock.jump(5)
            await served.settled()
            found = ready(broker)
            assert "kept everybody waiting for 5.0 s" in bad(found)["event_loop"]
            assert (found.ok, found.status) == (True, "warning")
            for _ in range(3):
                served.clock.jump(WINDOW_SECONDS / 2)
                await served.settled()
            broker.lag._worst = broker.lag._worst_before = 0.0
            assert bad(ready(broker)) == {}
            nursery.cancel_scope.cancel()
        served.clock.jump(STUCK_LOOP_SECONDS + 1)
        assert "event_loop" in bad(live(broker))

    serve(check, tmp_path, health_disk_min_free_bytes=0)


def test_one_bad_check_hides_behind_a_warning() -> None:
    checks = [Check("a", "ok", ""), Check("b", "warning", ""), Check("c", "bad", "")]
    assert (Health(checks).ok, Health(checks).status) == (False, "bad")
    assert (Health(checks[:2]).ok, Health(checks[:2]).status) == (True, "warning")
