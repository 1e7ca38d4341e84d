"""Search in a running broker: the task that makes files of keys, restarts, faults, bounds."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.core import pools
from kumquat.core.logs.messages.keys import service
from kumquat.core.logs.messages.keys.service import LOOK_SECONDS, RETRY_SECONDS
from kumquat.core.logs.tests.batches import TIME
from kumquat.core.logs.tests.keyed import Sent, packed
from kumquat.gateway.search import matching, scan
from kumquat.gateway.search.query import Found, Query
from kumquat.gateway.search.scan import search
from kumquat.gateway.tests.harness import serve

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.tests.harness import Served


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock clock stands still: what rests by it rests forever."""
    monkeypatch.setattr(service, "REST_SECONDS", 0.0)


OPTIONS = {"log_segment_bytes": 4000}
EVERY = 7


async def settled(served: Served) -> None:
    """No thread is at work. The harness takes a sync of the index of keys for one that is held."""
    await served.settled()
    while pools.at_work():
        await served.settled()


async def filled(served: Served, count: int = 210, *, index: bool = False) -> Subject:
    """A subject over several segments: message n has key n % 7 and value n."""
    await served.create("orders", **{"index.keys": "true"} if index else {})
    subject = served.broker.log.subjects.by_name["orders"]
    for first in range(0, count, 3):
        sent = [Sent(b"key-%d" % (n % EVERY), b"value %d" % n) for n in range(first, first + 3)]
        served.broker.log.append_nowait(subject, memoryview(packed(sent)))
        await served.broker.log.wait_synced()
    await settled(served)
    return subject


async def looked(served: Served) -> None:
    """The task has looked once more."""
    served.clock.jump(LOOK_SECONDS)
    await settled(served)


def offsets(found: Found) -> list[int]:
    return [message.offset for message in found.messages]


def expected(key: int, count: int = 210) -> list[int]:
    return [n for n in reversed(range(count)) if n % EVERY == key]


def keys_files(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "messages").glob("*.keys*"))


async def check_all(served: Served, subject: Subject, *, by_index: bool) -> None:
    for key in range(EVERY):
        query = Query(subject, key=b"key-%d" % key, limit=1000)
        found = await search(served.broker, query)
        assert (offsets(found), found.next) == (expected(key), None)
        assert found.by_index is by_index
        oldest = await search(served.broker, replace(query, newest=False))
        assert offsets(oldest) == expected(key)[::-1]


def test_an_index_that_is_switched_on_later_or_off_again_changes_no_answer(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        subject = await filled(served)
        await looked(served)
        assert not keys_files(tmp_path)
        await check_all(served, subject, by_index=False)
        await served.broker.subjects.alter(subject, {"index.keys": "true"})
        await settled(served)
        segments = served.broker.log.log.state.segments
        assert len(segments) > 3
        assert len(keys_files(tmp_path)) == len(segments) - 1
        await check_all(served, subject, by_index=True)
        await served.broker.subjects.alter(subject, {"index.keys": None})
        await check_all(served, subject, by_index=False)

    serve(check, tmp_path, **OPTIONS)


def test_a_restart_uses_the_files_that_are_there_and_makes_those_that_are_not(
    tmp_path: Path,
) -> None:
    async def first(served: Served) -> None:
        await filled(served, index=True)
        await looked(served)

    async def second(served: Served) -> None:
        subject = served.broker.log.subjects.by_name["orders"]
        await looked(served)
        assert [path for path in keys_files(tmp_path) if path.suffix == ".keys"] == made
        assert {path.stat().st_ino for path in made} >= kept
        assert lost.exists()
        assert not left_behind.exists()
        assert not orphan.exists()
        await check_all(served, subject, by_index=True)

    serve(first, tmp_path, **OPTIONS)
    made = keys_files(tmp_path)
    lost, flipped = made[0], made[1]
    left_behind = made[0].with_name(made[0].name + ".tmp")
    orphan = made[0].with_name("00000000000099999999.keys")
    for path in (left_behind, orphan):
        path.write_bytes(b"half of it")
    lost.unlink()
    content = bytearray(flipped.read_bytes())
    content[20] ^= 1
    flipped.write_bytes(content)
    kept = {path.stat().st_ino for path in made[2:]}
    serve(second, tmp_path, **OPTIONS)


def test_a_page_that_is_damaged_later_costs_no_answer_and_is_made_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        subject = await filled(served, index=True)
        await looked(served)
        path = keys_files(tmp_path)[0]
        whole = path.read_bytes()
        content = bytearray(whole)
        content[-4000] ^= 1
        with path.open("r+b") as file:
            file.write(content)
        await check_all(served, subject, by_index=True)
        await looked(served)
        assert path.read_bytes() == whole

    serve(check, tmp_path, **OPTIONS)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_what_cannot_be_made_is_logged_once_scanned_and_made_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    async def check(served: Served) -> None:
        subject = await filled(served)
        served.files.write_error = error
        with caplog.at_level(logging.ERROR, "kumquat.keys"):
            await served.broker.subjects.alter(subject, {"index.keys": "true"})
            for _ in range(5):
                await looked(served)
        assert not keys_files(tmp_path)
        told = [each for each in caplog.records if "cannot be made for now" in each.message]
        assert len(told) == len(served.broker.log.log.state.segments) - 1
        served.files.write_error = None
        await check_all(served, subject, by_index=False)
        served.clock.jump(RETRY_SECONDS)
        await settled(served)
        await check_all(served, subject, by_index=True)

    serve(check, tmp_path, **OPTIONS)


def test_without_descriptors_it_waits_and_tries_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        subject = await filled(served)
        served.files.read_trouble["open"] = errno.EMFILE
        await served.broker.subjects.alter(subject, {"index.keys": "true"})
        await looked(served)
        assert not keys_files(tmp_path)
        served.files.read_trouble.clear()
        served.clock.jump(RETRY_SECONDS)
        await settled(served)
        await check_all(served, subject, by_index=True)

    serve(check, tmp_path, **OPTIONS)


def test_a_file_of_keys_goes_with_its_segment(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        subject = await filled(served, index=True)
        await looked(served)
        await served.broker.log.apply_retention()
        await settled(served)
        bases = [segment.base for segment in served.broker.log.log.state.segments[:-1]]
        assert [int(path.stem) for path in keys_files(tmp_path)] == bases
        found = await search(served.broker, Query(subject, key=b"key-3", limit=1000))
        assert offsets(found) == [n for n in expected(3) if n >= subject.earliest > 0]

    serve(check, tmp_path, log_total_bytes=12_000, **OPTIONS)


def test_what_is_not_synced_is_not_found(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        subject = await filled(served, count=3)
        served.files.hold_syncs()
        served.broker.log.append_nowait(subject, memoryview(packed([Sent(b"new")])))
        served.broker.log.write_nowait()
        assert offsets(await search(served.broker, Query(subject, key=b"new"))) == []
        served.files.release_syncs()
        await served.broker.log.wait_synced()
        assert offsets(await search(served.broker, Query(subject, key=b"new"))) == [3]

    serve(check, tmp_path)


@pytest.mark.parametrize("newest", [True, False])
def test_a_search_ends_at_its_bounds_and_next_leads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: bool
) -> None:
    monkeypatch.setattr(scan, "MOST_BYTES", 1000)

    async def check(served: Served) -> None:
        subject = await filled(served)
        query = Query(subject, text=b"value 17", newest=newest)
        pages, found = 0, list[int]()
        while True:
            page = await search(served.broker, query)
            found += offsets(page)
            pages += 1
            if page.next is None:
                break
            query = replace(query, after=page.next)
        assert sorted(found) == [17, *range(170, 180)]
        assert pages >= 3

    serve(check, tmp_path, **OPTIONS)


def test_time_bounds_are_exact_and_step_over_old_segments(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("orders")
        subject = served.broker.log.subjects.by_name["orders"]
        for n in range(300):
            batch = packed([Sent(b"k", b"x" * 50, timestamp=TIME + n * 1000)])
            served.broker.log.append_nowait(subject, memoryview(batch))
            await served.broker.log.wait_synced()
        await settled(served)
        bounds = {"since": TIME + 280_500, "until": TIME + 290_000, "limit": 1000}
        found = await search(served.broker, Query(subject, **bounds))  # type: ignore[arg-type]
        assert offsets(found) == list(range(289, 280, -1))
        assert found.batches == 19
        assert (found.first, found.end, found.next) == (0, 300, None)

    serve(check, tmp_path, **OPTIONS)


def test_a_damaged_batch_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        subject = served.broker.log.subjects.by_name["orders"]
        for newest in (True, False):
            query = Query(subject, key=b"key-3", newest=newest, limit=1000)
            found = await search(served.broker, query)
            assert [(each.first, each.end) for each in found.unreadable] == [(9, 12)]
            assert "CRC" in found.unreadable[0].why
            assert sorted(offsets(found)) == [n for n in expected(3)[::-1] if n != 10]

    async def first(served: Served) -> None:
        await filled(served)

    serve(first, tmp_path, **OPTIONS)
    path = min((tmp_path / "data" / "messages").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[content.index(b"value 10")] ^= 1
    path.write_bytes(content)
    serve(check, tmp_path, **OPTIONS)


def test_the_index_of_a_damaged_segment_has_it_scanned_so_that_the_damage_shows(
    tmp_path: Path,
) -> None:
    async def first(served: Served) -> None:
        await filled(served)

    async def check(served: Served) -> None:
        subject = served.broker.log.subjects.by_name["orders"]
        await served.broker.subjects.alter(subject, {"index.keys": "true"})
        await looked(served)
        found = await search(served.broker, Query(subject, key=b"key-3", limit=1000))
        assert found.by_index
        assert [(each.first, each.end) for each in found.unreadable] == [(9, 12)]
        assert offsets(found) == [n for n in expected(3) if n != 10]

    serve(first, tmp_path, **OPTIONS)
    path = min((tmp_path / "data" / "messages").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[content.index(b"value 10")] ^= 1
    path.write_bytes(content)
    serve(check, tmp_path, **OPTIONS)


def test_a_read_that_fails_for_now_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        subject = served.broker.log.subjects.by_name["orders"]
        await search(served.broker, Query(subject))  # indexes are in memory
        served.files.read_trouble["preadv_into"] = errno.EIO
        found = await search(served.broker, Query(subject, key=b"key-3", first=0, end=9))
        assert [(each.first, each.end) for each in found.unreadable] == [(6, 9), (3, 6), (0, 3)]
        served.files.read_trouble.clear()
        found = await search(served.broker, Query(subject, key=b"key-3", first=0, end=9))
        assert offsets(found) == [3]

    async def first(served: Served) -> None:
        await filled(served)

    serve(first, tmp_path, **OPTIONS)
    serve(check, tmp_path, **OPTIONS)


def test_a_search_whose_client_has_gone_ends_inside_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of very many records does not keep the thread."""
    seen = []

    async def check(served: Served) -> None:
        await served.create("orders")
        subject = served.broker.log.subjects.by_name["orders"]
        batch = packed([Sent(None, b"x")] * 5000, "zstd")
        served.broker.log.append_nowait(subject, memoryview(batch))
        await served.broker.log.wait_synced()
        with trio.CancelScope() as scope:
            token, matches = trio.lowlevel.current_trio_token(), Query.matches

            def watched(query: Query, record: object) -> bool:
                seen.append(record)
                if len(seen) == 100:
                    trio.from_thread.run_sync(scope.cancel, trio_token=token)
                return matches(query, record)  # type: ignore[arg-type]

            monkeypatch.setattr(Query, "matches", watched)
            await search(served.broker, Query(subject, text=b"x", limit=1000, newest=True))
        assert scope.cancelled_caught
        assert len(seen) <= matching._AT_A_TIME

    serve(check, tmp_path)


def test_an_answer_holds_no_more_than_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "ANSWER_BYTES", 20_000)

    async def check(served: Served) -> None:
        await served.create("orders")
        subject = served.broker.log.subjects.by_name["orders"]
        batch = packed([Sent(b"k", b"%d" % n * 5000) for n in range(10)], "gzip")
        served.broker.log.append_nowait(subject, memoryview(batch))
        await served.broker.log.wait_synced()
        for newest, pages in (
            (True, [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]),
            (False, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
        ):
            query = Query(subject, key=b"k", newest=newest, limit=100, max_value=1 << 20)
            for page in pages:
                found = await search(served.broker, query)
                assert offsets(found) == page
                query = replace(query, after=found.next)
            assert found.next is None

    serve(check, tmp_path)


def test_searches_agree_while_segments_are_rolled_indexed_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads search what the event loop and another thread move from memory to files meanwhile."""
    monkeypatch.setattr(service, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(service, "STEP_SECONDS", 0.0)

    async def produce(served: Served, subject: Subject, done: trio.Event) -> None:
        for first in range(0, 900, 3):
            sent = [Sent(b"key-%d" % (n % EVERY), b"v%d" % n) for n in range(first, first + 3)]
            served.broker.log.append_nowait(subject, memoryview(packed(sent)))
            await served.broker.log.wait_synced()
            if first % 90 == 0:
                await served.broker.log.apply_retention()
        done.set()

    async def check(served: Served) -> None:
        await served.create("orders", **{"index.keys": "true"})
        subject, done = served.broker.log.subjects.by_name["orders"], trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, served, subject, done)
            newest = False
            while not done.is_set():
                earliest, end, newest = subject.earliest, subject.readable_end, not newest
                query = Query(subject, key=b"key-3", end=end, newest=newest, limit=1000)
                found = await search(served.broker, query)
                offered = [n for n in range(subject.earliest, end) if n % EVERY == 3]
                assert set(offsets(found)) >= set(offered)
                assert set(offsets(found)) <= {n for n in range(earliest, end) if n % EVERY == 3}
                assert offsets(found) == sorted(offsets(found), reverse=newest)
                assert (found.unreadable, found.next) == ([], None)
        while not subject.earliest:
            await served.broker.log.apply_retention()
        while not (await search(served.broker, Query(subject, key=b"key-3"))).by_index:
            await trio.lowlevel.checkpoint()

    serve(check, tmp_path, log_total_bytes=16_000, **OPTIONS)
