"""`kumquat-spark dedupe`: one subject into another, each message id once within a window.

    dedupe(spark, "127.0.0.1:9092", "orders", "orders-once", "dedupe-orders", window=timedelta(hours=1))

A message is let through when no message with its id was let through in the window before it; its
duplicates in that time are left out. After the window the id may come again. What is let through is a copy
as copies/copier.py makes them: same key, value and headers, with its origin and its first time added.

The clock of the window is the latest message time of the subject so far. It depends on the messages,
not on when they are read, and never goes back. So a message with an old time is neither lost nor let
through twice, a run over last week decides as it would have decided last week, and batches may
be cut anywhere. A time ahead of the wall clock counts as the wall clock's.

A message without an id is let through; the summary says how many there were. By `key` a message's key is
its id, by `id` only where it has no id of its own. Use these where each key comes once: of all messages
with the same key only one in a window is let through.

A run proceeds in batches to the end that the source had when the run began, or, with `follow`, until it is
stopped. Before a batch sends anything, its range and what it lets through are on disk
(dedupe/state.py). An interrupted batch is not decided again: the same messages are let through,
even if retention has deleted some meanwhile, and copies/copier.py sends each once.

A batch reads its own messages and the ids of one window. If retention deleted messages before they were
read, the run ends, unless `accept_loss`; then the loss is kept and shown in every summary, and nothing is
sent twice because of it (dedupe/steps.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import check_subjects, earliest
from kumquat.spark.pipelines.common.identity import ID_HEADER, WAYS, check_way
from kumquat.spark.pipelines.common.sources import add_broker
from kumquat.spark.pipelines.common.summary import SILENT, Progress, Summary, count, duration
from kumquat.spark.pipelines.common.targets import add_create, check_target, make_target
from kumquat.spark.pipelines.common.times import parse_length
from kumquat.spark.pipelines.copies.copier import Copier
from kumquat.spark.pipelines.copies.journal import Run
from kumquat.spark.pipelines.dedupe.state import FILE, Rule, State, StateFile
from kumquat.spark.pipelines.dedupe.steps import Steps

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

WINDOW = timedelta(hours=1)
BATCH = 500_000
ASK_SECONDS = 1.0
BY = "header"
_LACKS = {"header": "header {}", "id": "header {} and no key", "key": "key"}


@dataclass
class Deduped:
    """What the run has done since it began, over all its starts."""

    rule: Rule
    state: State
    doubled: int = 0

    @property
    def read(self) -> int:
        return self.state.read

    @property
    def sent(self) -> int:
        return self.state.sent

    @property
    def batches(self) -> int:
        return self.state.batch

    def summary(self) -> Summary:
        state, window = self.state, duration(self.rule.window_ms / 1000)
        left_out = state.read - state.sent - state.unsent
        values = [
            ("read", count(state.read, "message")),
            ("let through", f"{count(state.sent)}, in batches: {state.batch:,}"),
            ("left out", f"{count(left_out)}, whose id came before within {window}"),
        ]
        if state.nameless:
            lacks = _LACKS[self.rule.by].format(self.rule.id_header)
            values.append(("without an id", f"{count(state.nameless)}, which have no {lacks}"))
        for start, end in state.lost:
            text = f"offsets {start:,} to {end - 1:,}, deleted before they were read"
            values.append(("LOST", text))
        if state.unsent:
            text = "deleted before it was known that they were sent"
            values.append(("NOT SENT", f"{count(state.unsent, 'message')}, {text}"))
        if self.doubled:
            values.append(("SENT TWICE", count(self.doubled, "message")))
        title = f"dedupe {self.rule.source} into {self.rule.target}"
        return Summary(title, values, ok=not self.doubled)


def dedupe(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    folder: Path | str,
    *,
    window: timedelta = WINDOW,
    by: str = BY,
    id_header: str = ID_HEADER,
    follow: bool = False,
    create: bool = False,
    accept_loss: bool = False,
    batch: int = BATCH,
    progress: Progress = SILENT,
) -> Deduped:
    rule = Rule(source, target, window // timedelta(milliseconds=1), by, id_header)
    _check(bootstrap, rule, batch, create)
    if create:
        make_target(bootstrap, target)
    run = Run("dedupe", "dedupe", source, target, FILE)
    place = Path(folder).absolute()
    with Copier(
        spark, bootstrap, place, run, watched=[source, target], progress=progress
    ) as copier:
        state_file = StateFile(place, rule, copier.run, earliest(bootstrap, [source])[source])
        pending = state_file.state.pending
        begun = pending.range if pending is not None and pending.decided is not None else None
        copier.check_next(state_file.state.batch, begun)
        state_file.clean()
        steps = Steps(spark, bootstrap, copier, state_file, accept_loss, batch)
        while True:
            end = steps.source_end()
            while state_file.state.pending is not None or state_file.state.next < end:
                steps.step(end)
                state = state_file.state
                progress(f"dedupe: {state.next:,} of {end:,} offsets, {state.sent:,} let through")
            if not follow:
                break
            time.sleep(ASK_SECONDS)
        return Deduped(rule, state_file.state, copier.doubled)


def _check(bootstrap: str, rule: Rule, batch: int, create: bool) -> None:
    if rule.source == rule.target:
        raise ConnectorError("source and target are the same subject: name another target")
    if rule.window_ms <= 0:
        raise ConnectorError("the window is longer than nothing: --window 1h, for instance")
    if batch < 1:
        raise ConnectorError(f"a batch has at least 1 message, not {batch}")
    check_way(rule.by)
    check_subjects(bootstrap, [rule.source])
    check_target(bootstrap, rule.target, create=create)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="the subject to read")
    parser.add_argument("target", metavar="TARGET", help="the subject to write, each id once")
    add_broker(parser)
    parser.add_argument(
        "--state", required=True, type=Path, metavar="FOLDER", help="what the run remembers"
    )
    parser.add_argument(
        "--window", type=parse_length, default=WINDOW, metavar="LENGTH", help="30m, 12h, 7d (1h)"
    )
    parser.add_argument(
        "--by",
        choices=WAYS,
        default=BY,
        help="what makes two messages the same: the id header (%(default)s); the key; or the header, "
        "else the key (id). A message without it is let through",
    )
    parser.add_argument(
        "--id-header", default=ID_HEADER, metavar="NAME", help="the id's header (%(default)s)"
    )
    add_create(parser)
    parser.add_argument(
        "--batch", type=int, default=BATCH, metavar="N", help="messages in a batch (%(default)s)"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument(
        "--accept-loss", action="store_true", help="go on when retention was faster than this"
    )


def check(args: argparse.Namespace) -> None:
    window = args.window // timedelta(milliseconds=1)
    rule = Rule(args.source, args.target, window, args.by, args.id_header)
    _check(args.bootstrap, rule, args.batch, args.create)


def run(spark: SparkSession, args: argparse.Namespace) -> Summary:
    return dedupe(
        spark,
        args.bootstrap,
        args.source,
        args.target,
        args.state,
        window=args.window,
        by=args.by,
        id_header=args.id_header,
        follow=args.follow,
        create=args.create,
        accept_loss=args.accept_loss,
        batch=args.batch,
        progress=args.progress,
    ).summary()
