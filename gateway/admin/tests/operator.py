"""An operator at a terminal: the commands of `kumquat`, against a broker in this process with its admin
endpoint on a real socket.

    async def check(served: Served) -> None:
        async with operator(served, capsys) as run:
            code, out, err = await run("groups", "list")
    serve(check, tmp_path)

A command runs in a thread, as its own process would, and reads and writes what a shell would give it.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from kumquat.gateway.admin.app import make_app
from kumquat.gateway.admin.server import AdminServer, bind_admin
from kumquat.gateway.cli.main import main
from kumquat.gateway.config.kinds import AdminListener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from kumquat.gateway.tests.harness import Served


class Result(NamedTuple):
    code: int
    out: Any
    """Text, or bytes if these are captured."""
    err: Any


class Operator:
    def __init__(self, url: str, capsys: pytest.CaptureFixture[Any]) -> None:
        self.url = url
        self._capsys = capsys

    async def __call__(self, *arguments: str) -> Result:
        command = [*arguments, "--admin", self.url]
        code = await trio.to_thread.run_sync(main, command)
        return Result(code, *self._capsys.readouterr())

    async def json(self, *arguments: str) -> Any:
        """What a command that must succeed answers."""
        code, out, err = await self(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    async def refused(self, *arguments: str) -> str:
        """The one line of a command that the broker must refuse."""
        code, out, err = await self(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), (code, out, err)
        assert err.startswith("kumquat: ")
        return str(err)


@asynccontextmanager
async def operator(served: Served, capsys: pytest.CaptureFixture[Any]) -> AsyncIterator[Operator]:
    server = AdminServer(make_app(served.broker))
    sock = bind_admin(AdminListener("127.0.0.1", 0))
    port = sock.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, sock)
        yield Operator(f"http://127.0.0.1:{port}", capsys)
        server.stop()
