"""`kumquat serve`: run the broker until SIGTERM or SIGINT.

    kumquat serve --listeners PLAINTEXT://127.0.0.1:9092 --log-dirs data
    kumquat serve --config server.properties --set message.max.bytes=2000000

Every option of the broker is a flag (its name with dashes for dots), an environment variable and a line of
the properties file: see config/sources.py. Flags and `--set` count in the order in which they are given:
the last one wins. When the broker cannot start for a reason that an operator can fix, stderr has one line
that says so (for bad options, one line for each), and the exit code is 2.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kumquat.core.errors import StartError
from kumquat.gateway.cli.command import WRONG, Action
from kumquat.gateway.config.declare import show
from kumquat.gateway.config.errors import BadOptions
from kumquat.gateway.config.options import OPTIONS
from kumquat.gateway.config.sources import Setting, explain_unknown, load
from kumquat.meta.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.gateway.config.declare import Option

GIVEN = "given"
"""Where a context keeps the settings of its command line."""


class _Setting(click.Option):
    """A flag that sets an option of the broker; with no option, `--set`, which names one."""

    def __init__(self, flag: str, declared: Option | None, help: str, metavar: str) -> None:
        super().__init__([flag], multiple=True, expose_value=False, help=help, metavar=metavar)
        self.flag = flag
        self.declared = declared

    def setting(self, text: str) -> Setting:
        if self.declared is not None:
            return Setting(self.declared.name, text, self.flag)
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{self.flag} {name}: expected NAME=VALUE")
        return Setting(name.strip(), value, self.flag)


class _Serve(Action):
    ignore_unknown_options = True  # `serve` knows better what to say about them

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            ctx.meta[GIVEN] = self._in_order(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """The broker takes signals itself; until then SIGTERM ends the process, as a crash would."""
        return click.Command.invoke(self, ctx)

    def _in_order(self, ctx: click.Context, args: Sequence[str]) -> list[Setting]:
        """The settings in the order of the command line: by themselves, Click's options lose it."""
        values, _, order = self.make_parser(ctx).parse_args(list(args))
        following = {name: iter(each) for name, each in values.items() if isinstance(each, list)}
        return [p.setting(next(following[p.name])) for p in order if isinstance(p, _Setting)]


def _flags() -> list[click.Parameter]:
    flags: list[click.Parameter] = [
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="a properties file of options",
        ),
        _Setting("--set", None, "any option, by its name", "NAME=VALUE"),
        click.Option(
            ["--hints"], is_flag=True, help="show three lines to paste that try the broker"
        ),
    ]
    for declared in OPTIONS.values():
        default = show(declared.default)
        doc = f"{declared.doc} Default: {default}" if default else declared.doc
        flags.append(_Setting(declared.flag, declared, doc, "VALUE"))
    return flags


@click.command(
    "serve",
    cls=_Serve,
    params=_flags(),
    options_metavar="[--config FILE] [--OPTION VALUE …]",
    epilog="Every option is also a line of the properties file (message.max.bytes=…) and a variable "
    "(KUMQUAT_MESSAGE_MAX_BYTES).",
)
@click.pass_context
def serve(ctx: click.Context, config: Path | None, hints: bool) -> int:
    """Run the broker until SIGTERM or SIGINT."""
    if ctx.args:
        flag = ctx.args[0].partition("=")[0]
        if not flag.startswith("--"):
            raise click.UsageError(f"unknown argument {ctx.args[0]!r}")
        raise click.UsageError(f"{flag}: {explain_unknown(flag[2:].replace('-', '.'))}")
    try:
        settings = load(config, os.environ, ctx.meta[GIVEN])

        # Not before the options are known to be right: to say what is wrong needs no broker.
        from kumquat.gateway.process.log import set_up_logging

        set_up_logging(settings.logging_level, format=settings.logging_format)

        from kumquat.gateway.cli.hints import show_hints
        from kumquat.gateway.process.server import run_broker

        return run_broker(settings, show_hints if hints else None)
    except BadOptions as error:
        return _refuse(*error.complaints)
    except (StartError, StoreError, OSError) as error:
        return _refuse(str(error))


def _refuse(*reasons: str) -> int:
    for reason in reasons:
        print(f"kumquat: {' '.join(reason.split())}", file=sys.stderr)
    return WRONG
