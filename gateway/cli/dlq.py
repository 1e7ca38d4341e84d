"""`kumquat dlq …`: dead letters of a running broker. A client of the admin endpoint.

    kumquat dlq list                                      dead-letter subjects, open letters by reason
    kumquat dlq list --subject orders.billing.dlq         its letters
    kumquat dlq show --subject orders.billing.dlq --sequence 17          one letter, whole
    kumquat dlq show --subject orders.billing.dlq --sequence 17 --raw    its value alone
    kumquat dlq redrive --subject orders.billing.dlq --dry-run           what would be sent where
    kumquat dlq redrive --group billing --reason attempts --since 2026-03-01 --rate 100
    kumquat dlq redrive --subject orders.billing.dlq --header tenant=a --to orders.test --most 10
    kumquat dlq purge --subject orders.billing.dlq --until 2026-01-01

Which letters: `--subject` (the dead-letter subject), `--origin`, `--group`, `--reason`, `--key`, `--header`
name=value, `--since` and `--until` (when they died); all that fit everything given. `redrive` and `purge`
need at least one of them: see dlq_moves.py. `--json`, `--admin` and the exit codes are those of `kumquat
delay`; 1 also when some letters could not be sent.
"""

from __future__ import annotations

import argparse
import json
import sys
from base64 import b64decode
from math import inf
from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.dlq_moves import move
from kumquat.gateway.cli.endpoint import add_flags, address, ask, given, report
from kumquat.gateway.cli.tables import listing, plain, time_or_dash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILTERS = {
    "subject": ("NAME", "the dead-letter subject"),
    "origin": ("NAME", "the subject that they come from"),
    "group": ("NAME", "the group that could not handle them"),
    "reason": ("WORD", "rejected, attempts, expired, unreadable"),
    "key": ("TEXT", "with this key"),
    "header": ("NAME=VALUE", "with this header"),
    "since": ("TIME", "died at this time or later: a time, or how long ago (2h)"),
    "until": ("TIME", "died before this time"),
}
SUBJECTS = {
    "SUBJECT": "subject",
    "OPEN": "open",
    "REJECTED": "rejected",
    "ATTEMPTS": "attempts",
    "EXPIRED": "expired",
    "UNREADABLE": "unreadable",
    "OTHER": "other",
    "OLDEST": "oldest@",
    "NEWEST": "newest@",
}
LETTERS = {
    "SUBJECT": "subject",
    "SEQUENCE": "sequence",
    "ORIGIN": "origin",
    "AT": "origin_sequence",
    "GROUP": "group",
    "ATTEMPTS": "attempts",
    "FIRST": "first@",
    "LAST": "last@",
    "REASON": "reason",
    "TEXT": "text",
    "KEY": "key",
    "SIZE": "size",
}


def add_commands(parser: argparse.ArgumentParser) -> None:
    """The commands below `kumquat dlq`."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def command(
        name: str, text: str, filters: Mapping[str, tuple[str, str]]
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        for flag, (metavar, about) in filters.items():
            added.add_argument(f"--{flag}", metavar=metavar, help=about)
        add_flags(added)
        return added

    found = command("list", "dead-letter subjects; or letters, if it is said which", FILTERS)
    found.add_argument("--limit", metavar="N", help="at most so many")
    found.add_argument("--after", metavar="CURSOR", help="go on where an earlier list ended")
    show = command("show", "one letter, with all its headers and its value", {})
    show.add_argument("--subject", required=True, metavar="NAME", help="the dead-letter subject")
    show.add_argument("--sequence", required=True, metavar="N", help="as a list shows it")
    show.add_argument("--raw", action="store_true", help="its value alone, byte by byte")
    redrive = command("redrive", "send letters back to where they came from", FILTERS)
    redrive.add_argument("--to", metavar="NAME", help="to this subject instead")
    redrive.add_argument("--rate", metavar="N", type=_rate, help="so many a second")
    purge = command("purge", "give letters up: they are not listed any more", FILTERS)
    for moving in (redrive, purge):
        moving.add_argument("--most", metavar="N", type=_count, help="at most so many")
        moving.add_argument("--dry-run", action="store_true", help="count, and change nothing")
        moving.add_argument("--yes", action="store_true", help="do it, also at a terminal")


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate < inf:
        raise argparse.ArgumentTypeError(f"{text} is no rate: letters a second, more than 0")
    return rate


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is no count: 1 or more")
    return count


def run(parsed: argparse.Namespace) -> int:
    """Ask, show the answers, and return the exit code. Raises Unreachable."""
    if parsed.action == "list":
        return _list(parsed)
    if parsed.action == "show":
        return _show(parsed)
    return move(parsed, given(parsed, *FILTERS))


def _list(parsed: argparse.Namespace) -> int:
    wanted = given(parsed, *FILTERS)
    pages = given(parsed, "limit", "after")
    if not wanted:
        return report(parsed, *ask(address(parsed), "GET", "/dlq", pages), _subjects)
    while True:
        status, answer = ask(address(parsed), "GET", "/dlq/letters", {**wanted, **pages})
        if answer.get("letters") or answer.get("next") is None:
            return report(parsed, status, answer, _letters)
        pages["after"] = answer["next"]  # nothing yet, and it took long


def _subjects(answer: Mapping[str, Any]) -> list[str]:
    found = answer["subjects"]
    lines = listing(found, SUBJECTS) if found else ["There are no dead letters."]
    lines += [
        plain(f"{each['subject']}: reasons and times are those of its first {each['looked_at']:,}")
        for each in found
        if each["looked_at"] < each["open"]
    ]
    return lines + _more(answer)


def _letters(answer: Mapping[str, Any]) -> list[str]:
    lines = listing(answer["letters"], LETTERS)
    if not answer["letters"]:
        lines = ["There are no such letters."]
    if answer["unreadable"]:
        lines.append(f"{answer['unreadable']:,} more cannot be read: they are damaged.")
    return lines + _more(answer)


def _more(answer: Mapping[str, Any]) -> list[str]:
    following = answer["next"]
    return [] if following is None else [f"There are more: --after {plain(following)}"]


def _show(parsed: argparse.Namespace) -> int:
    values = given(parsed, "subject", "sequence")
    status, answer = ask(address(parsed), "GET", "/dlq/show", values)
    if parsed.raw and status < 300:
        sys.stdout.flush()
        sys.stdout.buffer.write(_bytes(answer))
        sys.stdout.buffer.flush()
        return 0
    return report(parsed, status, answer, _letter)


def _bytes(item: Mapping[str, Any]) -> bytes:
    value = item["value"]
    if value is None:
        return b""
    return b64decode(value) if item.get("value_encoding") == "base64" else value.encode()


def _letter(answer: Mapping[str, Any]) -> Iterator[str]:
    for name in ("subject", "sequence", "origin", "origin_sequence", "group", "attempts"):
        yield _line(name, answer[name])
    for name in ("first", "last", "timestamp"):
        yield _line(name, time_or_dash(answer[name]))
    for name in ("reason", "text", "key", "size"):
        yield _line(name, answer[name])
    for header in answer["headers"]:
        shown = header["value"] if "value_encoding" not in header else _bytes(header).hex(" ")
        yield _line("header", f"{header['name']}: {'-' if shown is None else shown}")
    if answer["value"] is None:
        yield _line("value", None)
        return
    yield "value:"
    for line in _value(_bytes(answer)):
        yield f"  {plain(line)}"


def _line(name: str, value: object) -> str:
    return f"{name + ':':<17}{plain('-' if value is None or value == '' else str(value))}"


def _value(data: bytes) -> list[str]:
    """As JSON, as text, or in hexadecimal."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return [f"{at:08x}  {data[at : at + 16].hex(' ')}" for at in range(0, len(data), 16)]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text.splitlines()
    if isinstance(found, dict | list):
        return json.dumps(found, indent=2, ensure_ascii=False).splitlines()
    return text.splitlines()
