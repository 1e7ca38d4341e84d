"""What is called when a connection ends (`Session.on_end`): once, however it ends, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.net.tests.test_connection import alive, fetch
from kumquat.gateway.tests.harness import Served, serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kumquat.gateway.net.connection import Connection
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.tests.harness import Client


async def closed(client: Client, connection: Connection, served: Served) -> None:
    await client.stream.aclose()


async def closed_on_one_side(client: Client, connection: Connection, served: Served) -> None:
    await client.stream.send_eof()


async def no_request(client: Client, connection: Connection, served: Served) -> None:
    await client.stream.send_all(b"GET / HTTP/1.1\r\n\r\n")


async def aborted(client: Client, connection: Connection, served: Served) -> None:
    connection.abort("a test")


async def closed_in_a_long_poll(client: Client, connection: Connection, served: Served) -> None:
    await client.send((fetch("t", 0, max_wait_ms=60_000), 11))
    await served.settled()
    await client.stream.aclose()
    await served.settled()
    served.clock.jump(1.1)  # the acceptor looks once a second


ENDS = [closed, closed_on_one_side, no_request, aborted, closed_in_a_long_poll]


@pytest.mark.parametrize("end", ENDS)
def test_an_end_that_nobody_is_told_of_or_twice(
    tmp_path: Path, end: Callable[[Client, Connection, Served], Awaitable[None]]
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        ended: list[Session] = []
        async with served.client() as client:
            assert await alive(client)
            (connection,) = served.acceptor.connections
            connection.session.on_end.add(ended.append)
            await served.settled()
            assert not ended
            await end(client, connection, served)
            await served.settled()
            assert ended == [connection.session]

    serve(check, tmp_path)
