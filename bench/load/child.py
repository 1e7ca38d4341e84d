"""Load generators are child processes: they get their work as JSON and print their result as JSON.

So no generator shares a GIL with another, with a clock, or with the broker.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result", bound="DataclassInstance")


class Child(Generic[Result]):
    def __init__(self, module: str, work: DataclassInstance, result: type[Result]) -> None:
        self._what = f"{module} {type(work).__name__}"
        self._result = result
        spec = json.dumps({"work": type(work).__name__, **asdict(work)})
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        # Not on the command line, which is too short for the names of 10,000 topics.
        self.process.stdin.write(spec + "\n")
        self.process.stdin.flush()

    def finish(self) -> Result:
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError(f"{self._what} ended with {self.process.returncode}")
        return self._result(**json.loads(output))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def main(*kinds: tuple[type[DataclassInstance], Any]) -> None:
    """In the child: does the work that its input names with its function."""
    spec = json.loads(sys.stdin.readline())
    name = spec.pop("work")
    for kind, function in kinds:
        if kind.__name__ == name:
            print(json.dumps(asdict(function(kind(**spec)))))
