"""The `kumquat-spark` command: one subcommand for each pipeline.

    kumquat-spark archive orders payments --to archive
    kumquat-spark report orders --since 24h --page report.html
    kumquat-spark reconcile orders --archive archive
    kumquat-spark NAME --help

Progress goes to stderr, the summary to stdout. Starting Spark takes ten seconds, so what can be checked
without it is checked before: a pipeline's module may have `check(args)` for that.

| exit code | |
|---|---|
| 0 | done |
| 1 | done, and found what should not be: two sides that differ, a message sent twice |
| 2 | not done: one line on stderr says why and what to do (more than one is a bug of ours) |
| 130, 143 | stopped by Ctrl-C or SIGTERM; run it again, and it continues |

Spark's own log is off, since it prints pages where one line is enough; `--spark-log WARN` shows it.

The script is installed with the broker, PySpark is not: modules that need it are imported only when it is
there.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from kumquat.spark.errors import ConnectorError, clear_errors, needed
from kumquat.spark.pipelines.common.summary import Progress, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from pyspark.sql import SparkSession

PIPELINES = {
    "archive": "subjects to Parquet, each message once, from where the last run ended",
    "replay": "messages of an archive or a subject into a subject again",
    "dedupe": "one subject into another, each message id once within a window",
    "reconcile": "what is missing, doubled or out of order between two sides",
    "report": "rates, sizes, keys, silences and lateness by hour, with an HTML page",
    "trace": "how long messages waited and were handled, by group and member; the life of one",
    "search": "messages by key, header, text and time, in a subject or an archive",
}
DIFFERS, FAILED, INTERRUPTED, TERMINATED = 1, 2, 130, 143
LOG_LEVELS = ("OFF", "ERROR", "WARN", "INFO")
NOISY = ("kafka", "py4j", None)
"""Their warnings come as our own errors anyway; py4j logs an interrupt to the root logger."""


class _UsageError(Exception):
    pass


class _Terminated(KeyboardInterrupt):
    """SIGTERM ends it the same way as Ctrl-C."""


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    if missing := needed():
        return _refuse(missing)
    try:
        args = parser().parse_args(argv)
    except _UsageError as error:
        return _refuse(str(error))
    args.progress = Progress(sys.stderr)
    try:
        with _process_as_it_was():
            summary = run(args)
    except ConnectorError as error:
        args.progress.end()
        return _refuse(str(error))
    except OSError as error:
        args.progress.end()
        return _refuse(_explained(error))
    except KeyboardInterrupt as stop:
        args.progress.end()
        print("kumquat-spark: stopped; run it again to go on", file=sys.stderr)
        return TERMINATED if isinstance(stop, _Terminated) else INTERRUPTED
    except Exception:
        args.progress.end()
        traceback.print_exc()
        return FAILED
    _show(summary)
    return 0 if summary.ok else DIFFERS


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="kumquat-spark", description="Data pipelines on Kumquat, run by Spark.")
    commands = top.add_subparsers(dest="command", metavar="NAME", required=True)
    for name, text in PIPELINES.items():
        command = commands.add_parser(name, help=text, description=text)
        _module(name).add_arguments(command)
        group = command.add_argument_group("Spark")
        group.add_argument("--master", default="local[*]", help="where Spark runs (local[*])")
        group.add_argument(
            "--conf",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="any of Spark's options",
        )
        group.add_argument(
            "--spark-log", choices=LOG_LEVELS, default="OFF", help="what Spark may say (OFF)"
        )
    return top


def _module(name: str) -> Any:
    return import_module(f"kumquat.spark.pipelines.{name}.command")


def run(args: argparse.Namespace) -> Summary:
    from kumquat.spark.offsets import check_broker
    from kumquat.spark.session import spark_session

    module = _module(args.command)
    options = _spark_options(args)
    check = getattr(module, "check", None)
    check(args) if check is not None else check_broker(args.bootstrap)
    args.progress(f"{args.command}: starting Spark")
    spark = None
    try:
        spark = spark_session(f"kumquat {args.command}", args.master, **options)
        _take_signals()
        with clear_errors():
            summary: Summary = module.run(spark, args)
    finally:
        args.progress.end()
        if spark is not None:
            _stop(spark)
    return summary


def _spark_options(args: argparse.Namespace) -> dict[str, str | int | bool]:
    options: dict[str, str | int | bool] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.log.level": args.spark_log,
    }
    for given in args.conf:
        key, equals, value = given.partition("=")
        if not equals or "." not in key:
            raise ConnectorError(f"--conf {given}: write spark.KEY=VALUE")
        options[key.strip()] = value.strip()
    return options


def _stop(spark: SparkSession) -> None:
    """Spark may be half gone after Ctrl-C; it ends with this process in any case."""
    with suppress(Exception):
        spark.stop()


@contextmanager
def _process_as_it_was() -> Iterator[None]:
    """Restores what clients and Spark change in this process, and what is changed for them."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _take_signals() -> None:
    """PySpark's handler of SIGINT sends a request in the middle of an answer from Spark, which fails.
    A plain KeyboardInterrupt works: the connection is closed, and the pipelines end their jobs."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)


def _show(summary: Summary) -> None:
    try:
        print(summary.text(), flush=True)
    except BrokenPipeError:  # the reader (head, less) has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: OSError) -> str:
    """A disk that is full, a folder that is a file or not ours: the system knows which and why."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}: fix that or give another place, then run it again"


def _refuse(reason: str) -> int:
    print(f"kumquat-spark: {' '.join(reason.split())}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
