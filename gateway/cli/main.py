"""The `kumquat` command.

    kumquat serve --listeners PLAINTEXT://127.0.0.1:9092 --log-dirs data
    kumquat topics list; kumquat produce orders < lines; kumquat consume orders -e
    kumquat --version; kumquat --help; kumquat consume --help

Each command is a module of this package, or of kafka/ (topics, configs), records/ (produce, consume) and
watch/ (trace, search, top, doctor). COMMANDS names them; they are imported when they are called, so that
`kumquat --version` and `--help` answer at once.

Exit codes: 0 done; 1 refused, and one line on stderr says why and what to do; 2 the command is wrong, no
broker is there, or the broker cannot start; 130 Ctrl-C; 143 SIGTERM. A reader that has seen enough (head,
less) is no error.
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import click

from kumquat.gateway.cli.command import (
    COMPLETE,
    DONE,
    INTERRUPTED,
    REFUSED,
    TERMINATED,
    WRONG,
    Commands,
    Refused,
    Unreachable,
    explain,
)
from kumquat.gateway.cli.signals import Terminated

HERE = "kumquat.gateway.cli"
COMMANDS = {
    "serve": (f"{HERE}.serve:serve", "run the broker until SIGTERM or SIGINT"),
    "topics": (f"{HERE}.kafka.topics:topics", "list, describe, create, delete topics"),
    "configs": (
        f"{HERE}.kafka.configs:configs",
        "get, set, unset configs of topics, groups, broker",
    ),
    "produce": (
        f"{HERE}.records.produce:produce",
        "write lines or files as messages; with a delay",
    ),
    "consume": (f"{HERE}.records.consume:consume", "read messages, from anywhere, in any format"),
    "groups": (f"{HERE}.groups:groups", "list, describe, reset groups; skip damaged messages"),
    "delay": (f"{HERE}.delay:delay", "list, count, show, cancel, move what is pending"),
    "dlq": (f"{HERE}.dlq:dlq", "list, show, redrive, purge dead letters"),
    "trace": (f"{HERE}.watch.trace:trace", "the life of one message, as a table"),
    "search": (f"{HERE}.watch.search:search", "messages by key, header or text"),
    "top": (f"{HERE}.watch.top:top", "a live view: rates, lag, lateness, who is slow"),
    "doctor": (f"{HERE}.watch.doctor:doctor", "check this machine and the broker, say what to do"),
    "dump": (f"{HERE}.dump:dump", "show what is in a log or index file"),
    "completion": (f"{HERE}.completion:completion", "completion of names for bash, zsh, fish"),
}


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from kumquat.version import version  # importlib.metadata takes its time

        print(f"kumquat {version()}")
        ctx.exit()


kumquat = Commands(
    "kumquat",
    late=COMMANDS,
    noun="COMMAND",
    help="A message broker for Kafka clients.",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="show the version and exit",
        )
    ],
)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what a terminal has no character for is no failure
            stream.reconfigure(errors="backslashreplace")
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(kumquat, {}, "kumquat", COMPLETE, instruction)
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except click.UsageError as error:
        return _complain(explain(error), WRONG)
    except Unreachable as error:
        return _complain(str(error), WRONG)
    except Refused as error:
        return _complain(str(error), REFUSED)
    except Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _drop_output()
        return DONE
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"stopped: {where}{error.strerror or error}", REFUSED)
    return code


def _open_streams() -> None:
    """A stream that was closed (`>&-`) is None, and the next socket would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _drop_output() -> None:
    """What could not be written is not tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    """As Click's own main, which shows errors and interruptions in its own way, would run it."""
    try:
        with kumquat.make_context("kumquat", arguments) as ctx:
            return kumquat.invoke(ctx) or DONE
    except click.exceptions.Exit as ended:  # --help, --version
        return ended.exit_code


def _complain(reason: str, code: int) -> int:
    print(f"kumquat: {' '.join(reason.split())}", file=sys.stderr)
    return code
