"""Answers that wait behind a sync: what they cost, and that none is lost or overtakes another."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.net.answers import MAX_UNSENT
from kumquat.gateway.net.tests.test_connection import alive, fetch
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.wire import ApiVersionsRequest, FetchResponse

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 400_000
FETCHES = 50


def test_fetches_behind_a_produce_that_is_not_synced_cost_bounded_memory(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, served.client() as other:
            await client.call(produce("t", bytes(SIZE)), 9)
            await served.settled()
            served.files.hold_syncs()
            await client.send(
                (produce("t", b"late"), 9),
                *[(fetch("t", 0), 11)] * FETCHES,
                (ApiVersionsRequest(), 0),
            )
            await served.settled()
            (connection,) = [c for c in served.acceptor.connections if c.pending]
            answers = connection._answers
            assert MAX_UNSENT < answers.held < MAX_UNSENT + 2 * SIZE
            assert connection.pending < 6, "it is not read any further"
            assert not client.has_answer
            assert await alive(other)
            served.files.release_syncs()
            answer = await client.receive()
            assert answer.responses[0].partition_responses[0].base_offset == 1
            for _ in range(FETCHES):
                answer = await client.receive()
                assert len(answer.responses[0].partitions[0].records) > SIZE
            assert len((await client.receive()).api_keys) > 10
            await served.settled()
            assert (answers.held, answers.unsent, answers.full) == (0, 0, False)

    serve(check, tmp_path)


def test_what_waits_behind_a_failed_sync_is_answered_as_it_was(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await client.call(produce("t", b"early"), 9)
            await served.settled()
            served.files.hold_syncs()
            served.files.sync_error = 5
            await client.send(
                (ApiVersionsRequest(), 0),
                (produce("t", b"late"), 9),
                (fetch("t", 0), 11),
                (produce("t", b"later"), 9),
                (ApiVersionsRequest(), 0),
            )
            await served.settled()
            served.files.release_syncs()
            assert len((await client.receive()).api_keys) > 10
            refused = [await client.receive()]
            assert b"early" in bytes((await client.receive()).responses[0].partitions[0].records)
            refused.append(await client.receive())
            codes = [each.responses[0].partition_responses[0].error_code for each in refused]
            assert codes == [56, 56]
            assert len((await client.receive()).api_keys) > 10

    serve(check, tmp_path)


def test_an_answer_that_cannot_be_encoded_closes_its_connection_though_it_has_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, served.client() as other:
            served.files.hold_syncs()
            await client.send((produce("t", b"late"), 9))
            await served.settled()

            nonsense = FetchResponse(responses=[None])  # type: ignore[list-item]
            monkeypatch.setattr(
                "kumquat.gateway.handlers.fetch.FetchResponse", lambda **_: nonsense
            )
            await client.send((fetch("t", 0), 11))
            assert await client.closed()
            assert await alive(other)
            served.files.release_syncs()
        logged = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert logged == ["an answer could not be encoded; its connection is closed"]

    serve(check, tmp_path)
