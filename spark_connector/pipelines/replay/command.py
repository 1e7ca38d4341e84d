"""`kumquat-spark replay`: messages of a subject or an archive, back into a subject.

    chosen = Selection("orders", archive="archive", headers=("type=refund",))
    replay(spark, "127.0.0.1:9092", chosen, "orders-again")                          # a dry run
    replay(spark, "127.0.0.1:9092", chosen, "orders-again", run="refunds", send=True)

Without `send` it counts what matches and sends nothing. With it, it counts first, writes the plan
down, and then sends, in the order of the source, in batches; `rate` is copies a second at the most.

A run has a name, and keeps its state in a folder of that name. After a stop or a kill, the same command
continues the run and sends nothing twice (copies/copier.py says how, and what the limits are);
`rate` may change then. A run that is done stays done: to send the messages once more, name another.

Each copy has the key, the value and the headers of its message, and three headers more: `kumquat-run`,
`kumquat-origin` (subject/offset) and `kumquat-original-ms`, the message's first time. The time of
the copy itself is when it was sent, and it is sent at once: headers that ask for a delay are renamed
(copies/copier.py).
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.common.sources import add_broker, add_range
from kumquat.spark.pipelines.common.summary import (
    SILENT,
    Progress,
    Summary,
    count,
    duration,
    size,
)
from kumquat.spark.pipelines.common.targets import add_create, check_target, make_target
from kumquat.spark.pipelines.common.times import to_ms, told_time
from kumquat.spark.pipelines.copies.copier import Copier
from kumquat.spark.pipelines.copies.journal import Run
from kumquat.spark.pipelines.replay.plan import FILE, Found, Plan, Selection, find, load_plan

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

STATE = Path("kumquat-runs")
BATCH = 50_000
LARGEST_BATCH = 1_000_000
PACED_SECONDS = 10
"""How long a batch should take when there is a rate: progress is shown between batches."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass
class Replayed:
    """What a run has done, or in a dry run would do."""

    selection: Selection
    target: str
    found: Found
    run: str = ""
    """Empty: a dry run."""
    sent: int = 0
    before: int = 0
    """Sent when the run was started earlier."""
    doubled: int = 0
    missing: int = 0
    """Counted when the run began, and gone when they should have been sent."""

    def summary(self) -> Summary:
        found = self.found
        source = self.selection.archive or "the broker"
        values = [
            ("from", f"{self.selection.subject}, {source}"),
            ("to", self.target),
            ("matching", f"{count(found.messages, 'message')}, {size(found.octets)}"),
        ]
        if found.messages:
            spread = duration((found.last_ms - found.first_ms) / 1000)
            values.append(("offsets", f"{found.start:,} to {found.end - 1:,}, over {spread}"))
        for name, ms in (("since", self.selection.since_ms), ("until", self.selection.until_ms)):
            if ms is not None:
                values.append((name, told_time(ms)))
        if not self.run:
            return Summary("replay: a dry run; --send --run NAME sends them", values)
        values += [("run", self.run), ("sent", f"{self.sent:,} now, {self.before:,} before")]
        if self.doubled:
            values.append(("SENT TWICE", count(self.doubled, "message")))
        if self.missing:
            values.append(("MISSING", f"{count(self.missing, 'message')}, gone from the source"))
        ok = not self.doubled and not self.missing
        return Summary(f"replay: {count(self.sent, 'message')}", values, ok=ok)


def replay(
    spark: SparkSession,
    bootstrap: str,
    selection: Selection,
    target: str,
    *,
    send: bool = False,
    run: str = "",
    state: Path = STATE,
    rate: float | None = None,
    create: bool = False,
    progress: Progress = SILENT,
) -> Replayed:
    """Counts what is selected; with `send`, sends it, or continues to, as run `run`."""
    _check(bootstrap, selection, target, run if send else None, rate, create)
    if not send:
        progress("replay: counting")
        return Replayed(selection, target, find(spark, bootstrap, selection))
    if create:
        make_target(bootstrap, target)
    watched = [target] if selection.archive is not None else [selection.subject, target]
    folder, what = state / run, Run("replay", run, selection.subject, target, FILE)
    with Copier(spark, bootstrap, folder, what, watched=watched, progress=progress) as copier:
        plan = _plan(spark, bootstrap, selection, folder, copier.run, rate, progress)
        done = Replayed(plan.selection, target, plan.found, run, before=copier.sent)
        _send(spark, bootstrap, plan, copier, done, rate, progress)
        done.doubled, done.missing = copier.doubled, plan.found.messages - copier.sent
    progress.end()
    return done


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker(parser)
    add_range(parser)
    parser.add_argument("subject", metavar="SUBJECT", help="whose messages")
    parser.add_argument("--to", required=True, metavar="SUBJECT", help="where the copies go")
    parser.add_argument("--archive", type=Path, metavar="FOLDER", help="read them from there")
    parser.add_argument("--key", action="append", default=[], help="only this key (or these)")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="only with this header",
    )
    add_create(parser)
    parser.add_argument("--rate", type=float, metavar="N", help="at most N messages a second")
    parser.add_argument("--send", action="store_true", help="send them; without it, count only")
    parser.add_argument("--run", default="", metavar="NAME", help="the same name again: go on")
    parser.add_argument(
        "--state",
        type=Path,
        default=STATE,
        metavar="FOLDER",
        help="what runs remember (%(default)s)",
    )


def check(args: argparse.Namespace) -> None:
    """Checks what can be checked before Spark starts."""
    run = args.run if args.send else None
    _check(args.bootstrap, _selection(args), args.to, run, args.rate, args.create)


def run(spark: SparkSession, args: argparse.Namespace) -> Summary:
    return replay(
        spark,
        args.bootstrap,
        _selection(args),
        args.to,
        send=args.send,
        run=args.run,
        state=args.state,
        rate=args.rate,
        create=args.create,
        progress=args.progress,
    ).summary()


def _selection(args: argparse.Namespace) -> Selection:
    return Selection(
        args.subject,
        str(args.archive.absolute()) if args.archive else None,
        to_ms(args.since) if args.since else None,
        to_ms(args.until) if args.until else None,
        tuple(args.key),
        tuple(args.header),
    )


def _check(
    bootstrap: str,
    selection: Selection,
    target: str,
    run: str | None,
    rate: float | None,
    create: bool,
) -> None:
    if rate is not None and not (rate > 0 and math.isfinite(rate)):
        raise ConnectorError(f"a rate is more than 0 messages a second, and finite, not {rate}")
    if run is not None and not _NAME.fullmatch(run):
        raise ConnectorError(f"a run needs a name of letters, digits, . _ and -, not {run!r}")
    check_target(bootstrap, target, create=create)
    selection.bounds(bootstrap)


def _plan(
    spark: SparkSession,
    bootstrap: str,
    selection: Selection,
    folder: Path,
    run: str,
    rate: float | None,
    progress: Progress,
) -> Plan:
    plan = load_plan(folder, run)
    if plan is None:
        progress("replay: counting")
        found = find(spark, bootstrap, selection)
        archived = selection.archived_id()
        plan = Plan(run, selection, archived, _batch_size(found, rate), found)
        plan.save(folder)
    elif not plan.selection.same_messages(selection):
        raise ConnectorError(
            f"run {folder.name} was begun with another selection ({plan.selection}): give that one "
            "to go on, or another --run"
        )
    return plan


def _batch_size(found: Found, rate: float | None) -> int:
    """In offsets. With a rate: as many as hold the matches of PACED_SECONDS, evenly spread."""
    if rate is None or not found.messages:
        return BATCH
    wanted = rate * PACED_SECONDS * (found.end - found.start) / found.messages
    return max(1, min(int(wanted), LARGEST_BATCH))


def _send(
    spark: SparkSession,
    bootstrap: str,
    plan: Plan,
    copier: Copier,
    done: Replayed,
    rate: float | None,
    progress: Progress,
) -> None:
    began = time.monotonic()
    for number in range(copier.next_batch, plan.batches):
        plan.check_kept(bootstrap, number)
        rows = plan.selection.read(spark, bootstrap, plan.batch(number))
        try:
            sent = copier.send(rows, number, plan.batch(number), rate)
        except ConnectorError:
            plan.check_kept(bootstrap, number)  # retention may have been faster than Spark
            raise
        done.sent += sent.copies
        done.before += sent.held
        taken = duration(time.monotonic() - began)
        progress(f"replay: {copier.sent:,} of {plan.found.messages:,} messages, {taken}")
