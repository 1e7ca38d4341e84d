"""Java's properties syntax, in which Kafka's configuration files are written.

`name=value`, `name: value` or `name value`; comments begin with # or !; a backslash at the end of a line
continues it; \\t, \\n, \\uXXXX and so on are escapes.
"""

import re
from collections.abc import Iterator


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and empty lines, numbered from 1."""
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(" \t\f")
        if not start:
            if not line or line[0] in "#!":
                continue
            start = number
        if _continues(line):
            joined += line[:-1]
            continue
        yield start, joined + line
        joined, start = "", 0
    if start:
        yield start, joined


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


_SEPARATOR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u([0-9a-fA-F]{4})?|.)", re.DOTALL)
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def split(line: str) -> tuple[str, str]:
    """Name and value of a line, with their escapes."""
    match = _SEPARATOR.fullmatch(line)
    return (match[1], match[2]) if match else (line, "")


def unescape(text: str) -> str:
    """Raises ValueError for a \\u without its four digits."""

    def replace(match: re.Match[str]) -> str:
        if match[1] == "u":
            raise ValueError
        return chr(int(match[2], 16)) if match[2] else _PLAIN.get(match[1], match[1])

    return _ESCAPE.sub(replace, text)
