"""Searches and indexes that end the broker, stop its loop, or fill its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.core.logs.messages.keys.service import RETRY_SECONDS
from kumquat.core.logs.tests.batches import TIME
from kumquat.core.records.records import packed_varint
from kumquat.core.records.rewrite import Body, build, header
from kumquat.gateway.admin.search import message_view
from kumquat.gateway.history.trace import trace
from kumquat.gateway.search.query import MAX_HEADERS, Query
from kumquat.gateway.search.scan import search
from kumquat.gateway.search.tests.test_search import OPTIONS, check_all, filled, keys_files, looked
from kumquat.gateway.tests.harness import serve

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.tests.harness import Served


@pytest.mark.parametrize("where", ["wanted_in", "Build.step"])
def test_a_fault_in_the_index_of_keys_ends_the_broker(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    def fault(*arguments: object) -> None:
        raise ZeroDivisionError("a fault")

    async def check(served: Served) -> None:
        subject = await filled(served)
        with monkeypatch.context() as patched:
            patched.setattr(f"kumquat.core.logs.messages.keys.service.{where}", fault)
            await served.broker.subjects.alter(subject, {"index.keys": "true"})
            await looked(served)
        assert "a fault while" in caplog.text
        assert not keys_files(tmp_path)
        await check_all(served, subject, by_index=False)
        served.clock.jump(RETRY_SECONDS)
        await served.settled()
        await check_all(served, subject, by_index=True)

    serve(check, tmp_path, **OPTIONS)


def test_a_file_of_keys_is_not_made_for_a_subject_that_comes_back_to_it(tmp_path: Path) -> None:
    """What is complete is known by a number, not by comparing subjects: none may be passed over."""

    async def check(served: Served) -> None:
        subject = await filled(served, index=True)
        await served.create("other", **{"index.keys": "true"})
        await looked(served)
        for path in keys_files(tmp_path):
            path.unlink()
        served.broker.keys.files.forget(served.broker.log.log.state.segments[0])
        await looked(served)
        assert not keys_files(tmp_path), "nobody looks at what is complete"
        await served.broker.subjects.alter(subject, {"index.keys": "false"})
        await served.broker.subjects.alter(subject, {"index.keys": "true"})
        await looked(served)
        await looked(served)
        assert keys_files(tmp_path)
        await check_all(served, subject, by_index=True)

    serve(check, tmp_path, **OPTIONS)


def test_headers_without_content_fill_the_memory_and_stop_the_loop(tmp_path: Path) -> None:
    """Two bytes each in a message, and hundreds in an answer."""

    async def check(served: Served) -> None:
        await served.create("orders")
        subject = served.broker.log.subjects.by_name["orders"]
        headers, many = header(b"", b"") * 10_000, 10_000
        content = packed_varint(1) + b"k" + packed_varint(1) + b"v"
        for _ in range(200):
            batch = build([(Body(TIME, content, many, headers), ())])
            served.broker.log.append_nowait(subject, memoryview(batch))
        await served.broker.log.wait_synced()
        query = Query(subject, key=b"k", limit=1000)
        found = await search(served.broker, query)
        assert found.next is not None
        assert sum(len(message.headers) for message in found.messages) <= 11_000
        view = message_view(found.messages[0])
        assert (len(view["headers"]), view["headers_left_out"]) == (MAX_HEADERS, 9_900)
        life = await trace(served.broker, subject, 0)
        assert len(life["message"]["headers"]) == MAX_HEADERS

    serve(check, tmp_path)
