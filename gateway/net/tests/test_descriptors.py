"""File descriptors: connections leave some for the logs, and the log says when they run short."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from kumquat.gateway.net.tests.test_acceptor import warnings
from kumquat.gateway.net.tests.test_connection import alive
from kumquat.gateway.tests.harness import Served, produce, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


@contextmanager
def no_free_number_below_the_sockets(served: Served) -> Iterator[int]:
    """Fills the gaps that earlier tests left in the table of descriptors; gives the lowest free number."""
    highest = max(connection._sock.fileno() for connection in served.acceptor.connections)
    with ExitStack() as fillers:
        while True:
            filler = os.open(os.devnull, os.O_RDONLY)
            fillers.callback(os.close, filler)
            if filler > highest:
                yield filler + 1
                return


def test_connections_that_would_take_the_last_descriptors_are_refused_and_the_logs_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as first, served.client() as second:
            assert await alive(first)
            assert await alive(second)
            with no_free_number_below_the_sockets(served) as limit:
                served.acceptor._highest_socket = limit
                async with served.client() as third:
                    assert await third.closed()
                assert await alive(second)
                answer = await first.call(produce("t", b"x"), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
        await served.settled()
        async with served.client() as again:
            assert await alive(again)
        (line,) = warnings(caplog)
        assert "the rest is for the logs" in line
        assert "ulimit -n" in line

    serve(check, tmp_path)


def test_the_soft_limit_is_raised_at_start_and_a_hard_one_that_is_too_low_is_reported() -> None:
    script = (
        "import logging, resource\n"
        "from kumquat.gateway.net.descriptors import highest_socket, raise_limit\n"
        "logging.basicConfig(format='%(levelname)s %(message)s')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 400))\n"
        "raise_limit(200)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], highest_socket())\n"
        "raise_limit(10_000)\n"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert hard == resource.RLIM_INFINITY or hard >= 400
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["400", "300"]
    (line,) = done.stderr.splitlines()
    assert line.startswith("WARNING max.connections=10000, but only 400 files may be open")
