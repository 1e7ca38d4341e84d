"""The text of a generated function, and how a failure inside it gets the name of its field.

`CodeWriter` collects indented lines and notes for each line which field it works on. That costs nothing
while the function runs. When it fails, the line number of the failure is looked up here and gives
the path for the `WireError`. So generated code contains no bookkeeping, and exactly one
`try` around its whole body.

`CodeWriter.constant` names an object for use in the text (a bound `struct.Struct` method, a class).
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kumquat.gateway.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What wrong bytes, or wrong values in a message, make the flat code raise.
FAILURES = (
    WireError,
    IndexError,
    struct.error,
    UnicodeError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
)


def run_path(paths: list[str]) -> str:
    """One path for fields that are read or written together: `topics[].(partition, offset)`."""
    if len(set(paths)) == 1:
        return paths[0]
    parent = paths[0].rpartition(".")[0]
    names = ", ".join(path.rpartition(".")[2] for path in paths)
    return f"{parent}.({names})" if parent else f"({names})"


class CodeWriter:
    def __init__(self, title: str, head: str) -> None:
        self.title = title
        self.lines = [head, "    try:"]
        self.paths = ["", ""]
        self.indent = 2
        self.path: list[str] = []
        self.names: dict[str, Any] = {}
        self.serial = 0

    def line(self, text: str, path: str | None = None) -> None:
        self.lines.append("    " * self.indent + text)
        self.paths.append(".".join(self.path) if path is None else path)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.indent += 1
        yield
        self.indent -= 1

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        self.path.append(name)
        yield
        self.path.pop()

    def fresh(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def constant(self, name: str, value: object) -> str:
        self.names.setdefault(name, value)
        return name

    def unpacker(self, formats: str) -> tuple[str, int]:
        packed = struct.Struct(">" + formats)
        name = "unpack_" + formats.replace("?", "T")
        return self.constant(name, packed.unpack_from), packed.size

    def packer(self, formats: str) -> str:
        name = "pack_" + formats.replace("?", "T")
        return self.constant(name, struct.Struct(">" + formats).pack)

    def compile(self, function: str, position: str) -> Callable[..., Any]:
        """Close the `try`, compile, and return the function."""
        self.indent = 1
        with self.block("except FAILURES as failure:"):
            self.line(f"raise explain(failure, {position}) from failure")
        names = {"FAILURES": FAILURES, "explain": self.explain, **self.names}
        text = "\n".join(self.lines)
        exec(compile(text, f"<{self.title}>", "exec"), names)
        made: Callable[..., Any] = names[function]
        return made

    def explain(self, failure: Exception, position: int | None) -> WireError:
        trace = failure.__traceback__
        path = self.paths[trace.tb_lineno - 1] if trace is not None else ""
        if isinstance(failure, WireError):
            reason = failure.reason
        elif isinstance(failure, IndexError):
            reason = "the bytes end here"
        else:
            reason = str(failure) or type(failure).__name__
        return WireError(reason, message=self.title, path=path, position=position)
