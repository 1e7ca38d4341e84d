"""Commands as a shell runs them, for tests: in this process (`run`), or as a process of its own (`start`).

    code, out, err = run("topics", "list", "--bootstrap", b.bootstrap)
    code, out, err = run("produce", "t", "-b", b.bootstrap, stdin=b"a\\n")

In this process Click's CliRunner gives the command its stdin, stdout and stderr, none of which is a
terminal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

from click.testing import CliRunner

from kumquat.gateway.cli.main import main

DEADLINE = 120


class Result(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        assert (self.code, self.err) == (0, ""), self
        return json.loads(self.out)

    @property
    def refused(self) -> str:
        """The one line of a command that is refused."""
        assert (self.code, self.out, self.err.count("\n")) == (1, b"", 1), self
        assert self.err.startswith("kumquat: ")
        return self.err

    @property
    def wrong(self) -> str:
        """The one line of a command that is wrong, or finds no broker."""
        assert (self.code, self.out, self.err.count("\n")) == (2, b"", 1), self
        assert self.err.startswith("kumquat: ")
        return self.err


def run(*arguments: str, stdin: bytes = b"", person: bool = False) -> Result:
    """`person`: stdin is a terminal, so somebody could be asked."""
    with CliRunner().isolation(input=stdin) as (out, err, _):
        if person:
            vars(sys.stdin)["isatty"] = lambda: True
        code = main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        return Result(code, out.getvalue(), err.getvalue().decode())


def start(*arguments: str, ignoring: str = "", **environ: str) -> subprocess.Popen[bytes]:
    """`ignoring`: a signal that is ignored from the start, as shells do for what they run behind."""
    command = [sys.executable, "-m", "kumquat", *arguments]
    if ignoring:
        command = ["sh", "-c", f"trap '' {ignoring}; exec \"$@\"", "sh", *command]
    return subprocess.Popen(
        command,
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def shell(*arguments: str, stdin: bytes = b"", **environ: str) -> Result:
    """A process of its own, until it ends."""
    process = start(*arguments, **environ)
    out, err = process.communicate(stdin, timeout=DEADLINE)
    return Result(process.returncode, out, err.decode())
