"""`kumquat-spark dedupe`: one subject into another, each message id once within a window.

    dedupe(spark, "127.0.0.1:9092", "orders", "orders-once", "dedupe-orders", window=timedelta(hours=1))

A message is let through when no message with its id was let through in the window before it; its
doubles in that time are left out. After the window the id may come again. What is let through is a copy
as copies/copier.py makes them: same key, value and headers, with its origin and its first time added.

The clock of the window is the latest time that the subject has shown so far: it goes by the messages,
not by when they are read, and never runs back. So a message with an old time is neither lost nor let
through twice, a run over last week decides as it would have decided last week, and batches may
be cut anywhere. A time ahead of the wall clock counts as the wall clock's.

A message without an id is known by its place alone, and so is let through; the summary tells how many
there were. By `key` a message's key is its id, by `id` only where it has no id of its own: ask for it
where a key comes once, since of all the messages of a key one in a window is left.

A run goes on in batches to where the source ends as it begins, or, with `follow`, until it is
stopped. Before a batch sends anything, its range and what it lets through are on disk
(dedupe/books.py). A batch that broke off is not decided again: the same messages are let through,
whatever retention has deleted meanwhile, and copies/copier.py sends each once.

A batch costs its own messages and the ids of one window. What retention deleted before it was read ends
the run, unless `accept_loss`; then it is kept and told in every summary, and nothing is sent twice for
it (dedupe/steps.py).
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
from kumquat.spark.pipelines.dedupe.books import FILE, Books, Page, Rule
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
    page: Page
    doubled: int = 0

    @property
    def read(self) -> int:
        return self.page.read

    @property
    def sent(self) -> int:
        return self.page.sent

    @property
    def batches(self) -> int:
        return self.page.batch

    def summary(self) -> Summary:
        page, window = self.page, duration(self.rule.window_ms / 1000)
        left_out = page.read - page.sent - page.unsent
        values = [
            ("read", count(page.read, "message")),
            ("let through", f"{count(page.sent)}, in batches: {page.batch:,}"),
            ("left out", f"{count(left_out)}, whose id came before within {window}"),
        ]
        if page.nameless:
            lacks = _LACKS[self.rule.by].format(self.rule.id_header)
            values.append(("without an id", f"{count(page.nameless)}, which have no {lacks}"))
        for start, end in page.lost:
            told = f"offsets {start:,} to {end - 1:,}, deleted before they were read"
            values.append(("LOST", told))
        if page.unsent:
            told = "deleted before it was known that they were sent"
            values.append(("NOT SENT", f"{count(page.unsent, 'message')}, {told}"))
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
        books = Books(place, rule, copier.run, earliest(bootstrap, [source])[source])
        pending = books.page.pending
        begun = pending.range if pending is not None and pending.decided is not None else None
        copier.check_next(books.page.batch, begun)
        books.clean()
        steps = Steps(spark, bootstrap, copier, books, accept_loss, batch)
        while True:
            end = steps.source_end()
            while books.page.pending is not None or books.page.next < end:
                steps.step(end)
                told = f"{books.page.next:,} of {end:,} offsets, {books.page.sent:,} let through"
                progress(f"dedupe: {told}")
            if not follow:
                break
            time.sleep(ASK_SECONDS)
        return Deduped(rule, books.page, copier.doubled)


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
