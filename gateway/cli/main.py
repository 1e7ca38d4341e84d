"""The `kumquat` command.

    kumquat serve --listeners PLAINTEXT://127.0.0.1:9092 --log-dirs data
    kumquat serve --config server.properties --set message.max.bytes=2000000
    kumquat dump data/…                  what is in a log or index file, and what is wrong with it
    kumquat delay list --subject orders  what is pending, and how to change it: see delay.py
    kumquat groups describe billing      who holds what, how far it is; reset and skip: see groups.py
    kumquat dlq list                     dead letters; show, redrive and purge them: see dlq.py
    kumquat --version

Every option of the broker is a flag of `serve` (its name with dashes for dots), an environment variable and
a line of the properties file: see config/sources.py. When the broker cannot start for a reason that an
operator can fix, stderr has one line that says so (for bad options, one line for each), and the exit code
is 2. Each command imports its modules when it runs, so that `kumquat --version` answers at once.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

CANNOT_START = 2


class _UsageError(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    """argparse, but a wrong command line raises an exception: the caller reports it as one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        parsed, extra = _parser().parse_known_args(arguments)
        if parsed.version:
            return _version()
        if parsed.command == "serve":
            return _serve(parsed, extra)
        if extra:
            raise _UsageError(f"unknown argument {extra[0]!r}")
        if parsed.command == "dump":
            return _dump(parsed.file)
        if parsed.command is not None:
            return _ask(parsed)
        raise _UsageError(
            "say what to do: kumquat serve, kumquat dump FILE, kumquat delay …, kumquat groups …, kumquat "
            "dlq … or kumquat --help"
        )
    except _UsageError as error:
        return _refuse(str(error))


def _parser() -> _Parser:
    from kumquat.gateway.cli import delay, dlq, groups
    from kumquat.gateway.config.declare import show
    from kumquat.gateway.config.options import OPTIONS

    parser = _Parser(prog="kumquat", description="A message broker for Kafka clients.")
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="run the broker until SIGTERM or SIGINT",
        usage="kumquat serve [--config FILE] [--OPTION VALUE …]",
        epilog="Every option is also a line of the properties file (message.max.bytes=…) and a "
        "variable (KUMQUAT_MESSAGE_MAX_BYTES).",
    )
    serve.add_argument("--config", type=Path, metavar="FILE", help="a properties file of options")
    serve.add_argument(
        "--set", action=_Given, dest="given", metavar="NAME=VALUE", help="any option, by its name"
    )
    serve.add_argument(
        "--hints", action="store_true", help="show three lines to paste that try the broker"
    )
    for option in OPTIONS.values():
        default = show(option.default)
        doc = f"{option.doc} Default: {default}" if default else option.doc
        serve.add_argument(
            option.flag,
            action=_Given,
            dest="given",
            const=option.name,
            metavar="VALUE",
            help=doc.replace("%", "%%"),
        )
    dump = commands.add_parser("dump", help="show what is in a log or index file")
    dump.add_argument("file", type=Path, metavar="FILE")
    for name, text, add_commands in (
        ("delay", "list, count, show, cancel, move what is pending", delay.add_commands),
        ("groups", "list, describe, reset groups; skip damaged messages", groups.add_commands),
        ("dlq", "list, show, redrive, purge dead letters", dlq.add_commands),
    ):
        add_commands(commands.add_parser(name, help=text))
    return parser


class _Given(argparse.Action):
    """Collects options in the order in which they are given; the last one counts."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        from kumquat.gateway.config.sources import Setting

        name, text, flag = self.const, str(values), str(option_string)
        if name is None:
            name, equals, text = text.partition("=")
            if not equals:
                raise _UsageError(f"{flag} {name}: expected NAME=VALUE")
        given = [*(getattr(namespace, self.dest) or ()), Setting(name.strip(), text, flag)]
        setattr(namespace, self.dest, given)


def _version() -> int:
    from kumquat.version import version

    print(f"kumquat {version()}")
    return 0


def _serve(parsed: argparse.Namespace, extra: Sequence[str]) -> int:
    from kumquat.core.errors import StartError
    from kumquat.gateway.config.errors import BadOptions
    from kumquat.gateway.config.sources import explain_unknown, load
    from kumquat.gateway.process.log import set_up_logging
    from kumquat.meta.errors import StoreError

    if extra:
        flag = extra[0].partition("=")[0]
        if not flag.startswith("--"):
            raise _UsageError(f"unknown argument {extra[0]!r}")
        raise _UsageError(f"{flag}: {explain_unknown(flag[2:].replace('-', '.'))}")
    try:
        config = load(parsed.config, os.environ, parsed.given or ())
        set_up_logging(config.logging_level, format=config.logging_format)

        from kumquat.gateway.cli.hints import show_hints
        from kumquat.gateway.process.server import run_broker

        return run_broker(config, show_hints if parsed.hints else None)
    except BadOptions as error:
        return _refuse(*error.complaints)
    except (StartError, StoreError, OSError) as error:
        return _refuse(str(error))


def _dump(path: Path) -> int:
    from kumquat.core.logs.dump import dump
    from kumquat.core.wheel.dump import dump_schedule, is_of_schedule

    try:
        if is_of_schedule(path):
            return dump_schedule(path, sys.stdout)
        return dump(path, sys.stdout)
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _refuse(f"cannot read {path}: {error.strerror or error}")


def _ask(parsed: argparse.Namespace) -> int:
    """A command that the broker's admin endpoint answers."""
    from kumquat.gateway.cli import delay, dlq, groups
    from kumquat.gateway.cli.endpoint import Unreachable

    commands = {"delay": delay.run, "dlq": dlq.run, "groups": groups.run}
    try:
        return commands[parsed.command](parsed)
    except Unreachable as error:
        return _refuse(str(error))


def _refuse(*reasons: str) -> int:
    for reason in reasons:
        print(f"kumquat: {' '.join(reason.split())}", file=sys.stderr)
    return CANNOT_START
