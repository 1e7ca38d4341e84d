"""`kumquat dump FILE`: what is in a file of the data folder, and where and why it is bad.

It reads the file itself, needs no broker, and may be used while one runs. What each kind of file shows is
decided where its format is: core/logs/dump.py, core/wheel/dump.py. Exit codes: 0 it is fine; 1 it is
damaged; 2 it cannot be read.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kumquat.core.logs.dump import dump as dump_log
from kumquat.core.wheel.dump import dump_schedule, is_of_schedule
from kumquat.gateway.cli.command import Action, Unreachable


@click.command("dump", cls=Action)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
def dump(file: Path) -> int:
    """Show what is in a log or index file."""
    try:
        return (dump_schedule if is_of_schedule(file) else dump_log)(file, sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unreachable(f"cannot read {file}: {error.strerror or error}") from None
