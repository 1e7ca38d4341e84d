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
        command = [sys.executable, "-m", module, spec]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def finish(self) -> Result:
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError(f"{self._what} ended with {self.process.returncode}")
        return self._result(**json.loads(output))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def main(*kinds: tuple[type[DataclassInstance], Any]) -> None:
    """In the child: does the work that the command line names with its function."""
    spec = json.loads(sys.argv[1])
    name = spec.pop("work")
    for kind, function in kinds:
        if kind.__name__ == name:
            print(json.dumps(asdict(function(kind(**spec)))))
