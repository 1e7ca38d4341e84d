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

import json
import sys
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.cli.command import DONE, Commands
from kumquat.gateway.cli.dlq_moves import Move, move
from kumquat.gateway.cli.endpoint import ask, asking, given, report
from kumquat.gateway.cli.names import complete_groups, complete_topics
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


NAMES = {"subject": complete_topics, "origin": complete_topics, "group": complete_groups}
dlq = Commands("dlq", help="List, show, redrive, purge dead letters.")


def _filters(command: Any) -> Any:
    for flag, (metavar, about) in reversed(FILTERS.items()):
        names = NAMES.get(flag)
        command = click.option(f"--{flag}", metavar=metavar, help=about, shell_complete=names)(
            command
        )
    return command


def _moving(command: Any) -> Any:
    """What redrive and purge have in common."""
    count = click.IntRange(1)
    for flag, about, settings in (
        ("--yes", "do it, also at a terminal", {"is_flag": True}),
        ("--dry-run", "count, and change nothing", {"is_flag": True}),
        ("--most", "at most so many", {"metavar": "N", "type": count}),
    ):
        command = click.option(flag, help=about, **settings)(command)
    return _filters(command)


@dlq.command("list")
@_filters
@click.option("--limit", metavar="N", help="at most so many")
@click.option("--after", metavar="CURSOR", help="go on where an earlier list ended")
@asking
def list_letters(admin: str, as_json: bool, **values: str | None) -> int:
    """Dead-letter subjects; or letters, if it is said which."""
    wanted = given(values, *FILTERS)
    pages = given(values, "limit", "after")
    if not wanted:
        return report(as_json, *ask(admin, "GET", "/dlq", pages), _subjects)
    while True:
        status, answer = ask(admin, "GET", "/dlq/letters", {**wanted, **pages})
        if answer.get("letters") or answer.get("next") is None:
            return report(as_json, status, answer, _letters)
        pages["after"] = answer["next"]  # nothing yet, and it took long


@dlq.command("show")
@click.option(
    "--subject",
    required=True,
    metavar="NAME",
    help="the dead-letter subject",
    shell_complete=complete_topics,
)
@click.option("--sequence", required=True, metavar="N", help="as a list shows it")
@click.option("--raw", is_flag=True, help="its value alone, byte by byte")
@asking
def show(admin: str, as_json: bool, raw: bool, **values: str) -> int:
    """One letter, with all its headers and its value."""
    status, answer = ask(admin, "GET", "/dlq/show", values)
    if raw and status < 300:
        sys.stdout.flush()
        sys.stdout.buffer.write(_bytes(answer))
        sys.stdout.buffer.flush()
        return DONE
    return report(as_json, status, answer, _letter)


@dlq.command("redrive")
@_moving
@click.option(
    "--to", metavar="NAME", help="to this subject instead", shell_complete=complete_topics
)
@click.option(
    "--rate",
    metavar="N",
    type=click.FloatRange(0, min_open=True, max=1e9),
    help="so many a second",
)
@asking
def redrive(
    to: str | None, rate: float | None, most: int | None, dry_run: bool, yes: bool, **rest: Any
) -> int:
    """Send letters back to where they came from."""
    wanted = given(rest, *FILTERS)
    how = Move("redrive", rest["admin"], rest["as_json"], dry_run, yes, most, rate)
    return move(how, wanted | ({} if to is None else {"to": to}) if wanted else {})


@dlq.command("purge")
@_moving
@asking
def purge(most: int | None, dry_run: bool, yes: bool, **rest: Any) -> int:
    """Give letters up: they are not listed any more."""
    how = Move("purge", rest["admin"], rest["as_json"], dry_run, yes, most)
    return move(how, given(rest, *FILTERS))


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
