"""Requests that decode but make little sense: extreme numbers, odd names, nulls, everything at once.

Whatever a request says, it gets an answer or its connection is closed for a reason; it is never a failure
of the broker (which would be an ERROR in the log, with a traceback).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.gateway.net.dispatch import dispatch
from kumquat.gateway.net.tests.test_connection import alive
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.wire.tests.samples import samples

if TYPE_CHECKING:
    from pathlib import Path

KEYS = [0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 60]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: dispatch.apis[key].name)
def test_no_request_makes_the_broker_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: int
) -> None:
    api = dispatch.apis[key]

    async def check(served: Served) -> None:
        for version in api.versions:
            for request in samples(api.request, version, mixed=4):
                if "orders" not in served.broker.log.subjects.by_name:
                    await served.create("orders")
                async with served.client() as client:
                    await client.stream.send_all(client.frame(request, version))
                    # Some wait for longer than a test should; their end is awaited elsewhere.
                    with trio.move_on_after(1):
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(client.stream.receive_some)
                            await served.settled()
                            served.clock.jump(2)
                failures = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
                assert not failures, (version, request)
        async with served.client() as client:
            assert await alive(client)

    serve(check, tmp_path)
