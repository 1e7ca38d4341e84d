"""`kumquat dlq redrive` and `purge`: counted first, then done in parts.

First what is meant is counted, by dead-letter subject, and where it would go. That is all that `--dry-run`
does. At a terminal a command goes on only with `--yes`; elsewhere it never asks. Then it goes through the
letters in parts, at `--rate` a second, up to `--most`. What was sent and dies again meanwhile is left for
the next time.

A command that was cut off (Ctrl-C, the broker stopped) can be repeated: what was sent back is no longer
open, so nothing is sent twice.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.cli.command import DONE, REFUSED, Unreachable
from kumquat.gateway.cli.endpoint import ask, report
from kumquat.gateway.cli.tables import listing, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

MEANT = {"SUBJECT": "subject", "LETTERS": "letters", "BYTES": "bytes", "TO": "where"}
AT_A_TIME = 500
"""Letters in one request."""
PARTS_A_SECOND = 4
"""With a rate."""


@dataclass(frozen=True, slots=True)
class Move:
    """What is to be done, and how; `rate` is in letters a second."""

    action: str
    admin: str
    as_json: bool
    dry_run: bool
    yes: bool
    most: int | None = None
    rate: float | None = None


class _Refused(Exception):
    """The broker refuses; what it answered."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer.get("message"))
        self.answer = answer


def move(how: Move, wanted: dict[str, Any]) -> int:
    """Redrive or purge the letters that are wanted. Raises Unreachable."""
    if not wanted:
        raise click.UsageError(
            f"say which letters to {how.action}: --subject NAME, --group NAME, …; "
            f"kumquat dlq {how.action} --help lists them"
        )
    try:
        meant = _Survey(how, wanted)
        meant.run()
    except _Refused as refused:
        return report(how.as_json, 400, refused.answer, lambda answer: ())
    if how.dry_run or not meant.rows or _must_ask(how):
        return _tell(how, meant)
    return _moved(how, _Mover(how, {**wanted, "begun": meant.begun}, meant.total))


def _must_ask(how: Move) -> bool:
    return not how.yes and sys.stdin.isatty()


class _Parts:
    """Goes through letters in parts."""

    def __init__(self, how: Move, wanted: dict[str, Any]) -> None:
        self._how = how
        self._values = wanted
        self.refused: dict[str, int] = {}

    def ask(self, **values: object) -> Any:
        path = f"/dlq/{self._how.action}"
        status, answer = ask(self._how.admin, "POST", path, {**self._values, **values})
        if status >= 300:
            raise _Refused(answer)
        if answer["next"] is not None:
            self._values = {**self._values, "after": answer["next"]}
        _add(self.refused, answer["refused"])
        return answer


class _Survey(_Parts):
    """What is meant, by dead-letter subject: how many letters, how large, and where they would go."""

    def __init__(self, how: Move, wanted: dict[str, Any]) -> None:
        super().__init__(how, wanted)
        self.begun = 0
        self.rows: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        most = self._how.most
        while most is None or self.total < most:
            room = {} if most is None else {"limit": min(AT_A_TIME, most - self.total)}
            answer = self.ask(dry_run=True, **room)
            self.begun = self.begun or answer["now"]
            self._count(answer)
            if answer["next"] is None:
                return

    def _count(self, answer: Mapping[str, Any]) -> None:
        if answer["done"] or answer["refused"]:
            name = answer["subject"]
            empty = {"subject": name, "letters": 0, "bytes": 0, "to": {}, "refused": {}}
            row = self.rows.setdefault(name, empty)
            row["letters"] += answer["done"]
            row["bytes"] += answer["bytes"]
            _add(row["to"], answer["to"])
            _add(row["refused"], answer["refused"])

    @property
    def total(self) -> int:
        return sum(row["letters"] for row in self.rows.values())


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count


def _tell(how: Move, meant: _Survey) -> int:
    """Say what would be done."""
    rows = list(meant.rows.values())
    if how.as_json:
        shown = {"subjects": rows, "letters": meant.total, "refused": meant.refused, "done": False}
        print(json.dumps(shown, ensure_ascii=False))
    elif not rows:
        print("There are no such letters.")
    else:
        for line in listing([{**row, "where": _places(row["to"])} for row in rows], MEANT):
            print(line)
        _complain(meant.refused, "cannot be sent")
    if not rows or how.dry_run:
        return DONE
    what = "give them up for good" if how.action == "purge" else "send them"
    print(f"kumquat: nothing was changed; add --yes to {what}", file=sys.stderr)
    return REFUSED


def _places(to: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in to.items())


def _complain(refused: Mapping[str, int], what: str) -> None:
    for reason, count in refused.items():
        print(plain(f"kumquat: {count:,} {what}: {reason}"), file=sys.stderr)


class _Mover(_Parts):
    """Moves them, at the rate that is asked for."""

    def __init__(self, how: Move, wanted: dict[str, Any], total: int) -> None:
        super().__init__(how, wanted)
        self._begun = monotonic()
        self._rate: float | None = how.rate
        self._most: int | None = how.most
        self._total: int = total if how.most is None else min(total, how.most)
        self.moved = 0
        self.to: dict[str, int] = {}

    def run(self) -> None:
        while self._most is None or self.moved < self._most:
            self._keep_to_rate()
            answer = self.ask(limit=self._portion())
            self.moved += answer["done"]
            _add(self.to, answer["to"])
            if sys.stderr.isatty():
                print(f"\r{self.moved:,} of {self._total:,}", end="", file=sys.stderr, flush=True)
            if answer["next"] is None:
                return

    def _portion(self) -> int:
        most = AT_A_TIME
        if self._rate is not None:
            most = max(1, min(most, int(self._rate / PARTS_A_SECOND)))
        return most if self._most is None else min(most, self._most - self.moved)

    def _keep_to_rate(self) -> None:
        if self._rate is not None:
            sleep(max(0.0, self._begun + self.moved / self._rate - monotonic()))


def _moved(how: Move, mover: _Mover) -> int:
    cut_off: BaseException | None = None
    try:
        mover.run()
    except (KeyboardInterrupt, Unreachable, _Refused) as error:
        cut_off = error
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if how.as_json:
        done = {"done": mover.moved, "to": mover.to, "refused": mover.refused}
        print(json.dumps({**done, "cut_off": cut_off is not None}, ensure_ascii=False))
    else:
        verb = "Given up" if how.action == "purge" else "Sent"
        where = f" to {_places(mover.to)}" if mover.to else ""
        print(plain(f"{verb}: {mover.moved:,}{where}."))
        _complain(mover.refused, "could not be sent")
    if cut_off is not None:
        why = str(cut_off) or "interrupted"
        print(plain(f"kumquat: stopped: {why}; repeat the command to go on"), file=sys.stderr)
    return REFUSED if mover.refused or cut_off is not None else DONE
