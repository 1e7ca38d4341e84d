"""What all commands share of Click: groups that load late, errors in one line, exit codes.

    kumquat = Commands("kumquat", late={"serve": ("kumquat.gateway.cli.serve:serve", "run the broker")})

Rules:
- A command is imported when it is called. `kumquat --help` shows the line that `late` has for it, and
  imports none: with kafka-python and Rich it would take several times as long.
- A wrong command line is one line on stderr that says what is wrong (`explain`), never a page of usage.
- A command returns its exit code. What it cannot do is an exception: Refused (1) or Unreachable (2), whose
  text is one line for the operator. Ctrl-C is INTERRUPTED, SIGTERM is TERMINATED, and both say nothing:
  they are exceptions too (signals.py), so that a command tidies up in its `finally`.
- Options have no abbreviations, so that a script does not break when another option is added.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.cli.signals import terminable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click.shell_completion import CompletionItem

DONE, REFUSED, WRONG, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
COMPLETE = "_KUMQUAT_COMPLETE"
"""The variable with which a shell asks for completions: see completion.py."""
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Refused(Exception):
    """The broker refuses, or it cannot be done; the text is one line that says why and what to do."""


class Unreachable(Exception):
    """No broker is there, or it did not answer; the text is one line for the operator."""


class Action(click.Command):
    """One command. What it does not know is named, in our words."""

    allow_extra_args = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        settings["context_settings"] = {**HELP, **(settings.get("context_settings") or {})}
        super().__init__(*arguments, **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing and not self.ignore_unknown_options:
            raise click.UsageError(f"unknown argument {rest[0]!r}", ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        with terminable():
            return super().invoke(ctx)


class Commands(click.Group):
    """Commands below a name. `late`: those that are imported when they are called, as module:attribute,
    with their line of help."""

    command_class = Action

    def __init__(
        self,
        name: str,
        late: Mapping[str, tuple[str, str]] | None = None,
        noun: str = "ACTION",
        **settings: Any,
    ) -> None:
        super().__init__(
            name,
            callback=click.pass_context(self._called),
            invoke_without_command=True,  # to say in our words that one is missing
            no_args_is_help=False,
            subcommand_metavar=f"{noun} …",
            context_settings=HELP,
            **settings,
        )
        self._late = late or {}
        self._noun = noun

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._late, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._late:
            return self.commands.get(cmd_name)
        module, _, attribute = self._late[cmd_name][0].partition(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not ctx.resilient_parsing:
            near = get_close_matches(args[0], known, 1)
            meant = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise click.UsageError(f"invalid choice: {args[0]!r} ({meant})", ctx)
        return super().resolve_command(ctx, args)

    def _called(self, ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            names = [f"{ctx.command_path} {name}" for name in self.list_commands(ctx)]
            raise click.UsageError(f"say which {self._noun}: {', '.join(names)} (or --help)", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As Click's, but without importing each command for its line of help."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._line(name)) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(f"{self._noun.capitalize()}s"):
            formatter.write_dl([(name, self._line(name)) for name in self.list_commands(ctx)])

    def _line(self, name: str) -> str:
        if name in self._late:
            return self._late[name][1]
        return self.commands[name].get_short_help_str(limit=100)


def explain(error: click.UsageError) -> str:
    """What is wrong with a command line, in one line."""
    if isinstance(error, click.NoSuchOption):
        near = sorted(error.possibilities or ())
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"unknown argument {error.option_name!r}{hint}"
    if isinstance(error, click.BadOptionUsage):
        return f"{error.option_name}: {_expected(error)}"
    if isinstance(error, click.MissingParameter):
        return f"the following arguments are required: {_hint(error)}"
    if isinstance(error, click.BadParameter):
        return f"{_hint(error)}: {error.message}"
    return error.format_message()


def _expected(error: click.BadOptionUsage) -> str:
    return "takes no value" if "not take a value" in error.message else "expected one argument"


def _hint(error: click.BadParameter) -> str:
    if error.param is None:
        return str(error.param_hint or "arguments")
    if isinstance(error.param, click.Option):
        return max(error.param.opts, key=len)
    return error.param.make_metavar(error.ctx or click.Context(click.Command(None)))
