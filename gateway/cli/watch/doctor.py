"""`kumquat doctor`: checks this machine and the broker, and says what to do.

    kumquat doctor                                 both
    kumquat doctor --machine --data /srv/kumquat   before the first start: this machine alone
    kumquat doctor --json

machine.py checks limits, disk, syncs, clock and memory of the machine on which it runs; running.py the
broker at `--bootstrap` and `--admin`. The data folder is `--data`, else that of the broker if it is on this
machine, else the current folder. Exit code 1 if something is bad.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kumquat.gateway.cli.bootstrap import bootstrap_option
from kumquat.gateway.cli.command import DONE, REFUSED, Action
from kumquat.gateway.cli.endpoint import asking
from kumquat.gateway.cli.watch.findings import BAD, show, told
from kumquat.gateway.cli.watch.machine import machine
from kumquat.gateway.cli.watch.running import data_folder, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.gateway.cli.watch.findings import Finding


@click.command("doctor", cls=Action)
@click.option("--data", type=click.Path(path_type=Path), metavar="FOLDER", help="the data folder")
@click.option("--machine", "machine_only", is_flag=True, help="this machine alone, no broker")
@bootstrap_option
@asking
def doctor(data: Path | None, machine_only: bool, bootstrap: str, admin: str, as_json: bool) -> int:
    """Check this machine and the broker, and say what to do."""
    found = []
    for finding in _findings(data, machine_only, bootstrap, admin):
        found.append(finding)
        if not as_json:
            show(finding)  # at once: some take seconds
    if as_json:
        print(json.dumps(told(found), ensure_ascii=False))
    return REFUSED if any(finding.state == BAD for finding in found) else DONE


def _findings(
    data: Path | None, machine_only: bool, bootstrap: str, admin: str
) -> Iterator[Finding]:
    folder = data
    if folder is None and not machine_only:
        folder = data_folder(bootstrap)
    yield from machine(folder or Path.cwd())
    if not machine_only:
        yield from running(bootstrap, admin)
