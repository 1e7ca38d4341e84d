"""`kumquat groups …`: what an operator may change in a group. A client of the admin endpoint.

    kumquat groups skip --group billing --subject orders             go on behind the damage
    kumquat groups skip --group billing --subject orders --to 5000   go on at this offset

For a group that reads in order and cannot go on because a batch is damaged (gateway/admin/groups.py). Stop
its consumers first, and start them again afterwards. `--json`, `--admin` and the exit codes are those of
`kumquat delay`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from kumquat.gateway.cli.delay import DEFAULT_ADMIN, REFUSED, VARIABLE, ask

if TYPE_CHECKING:
    import argparse


def add_commands(parser: argparse.ArgumentParser) -> None:
    """The commands below `kumquat groups`."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "have a group without members go on behind messages that are damaged"
    skip = commands.add_parser("skip", help=text, description=text)
    skip.add_argument("--group", required=True, metavar="NAME", help="the group")
    skip.add_argument("--subject", required=True, metavar="NAME", help="the subject")
    skip.add_argument(
        "--to", metavar="N", help="the offset to go on at; else the first that can be read"
    )
    skip.add_argument("--admin", metavar="URL", help="address of the admin endpoint")
    skip.add_argument("--json", action="store_true", help="show the answer as JSON")


def run(parsed: argparse.Namespace) -> int:
    """Send the request, show the answer, and return the exit code. Raises Unreachable."""
    values = {"group": parsed.group, "subject": parsed.subject}
    if parsed.to is not None:
        values["to"] = parsed.to
    admin = parsed.admin or os.environ.get(VARIABLE) or DEFAULT_ADMIN
    status, answer = ask(admin, "POST", "/groups/skip", values)
    if parsed.json:
        print(json.dumps(answer, ensure_ascii=False))
    elif "error" in answer:
        print(f"kumquat: {answer['message']}", file=sys.stderr)
    else:
        print(
            f"{answer['group']} skips {answer['skipped']:,} offsets of {answer['subject']}, from "
            f"{answer['from']:,} on, and goes on at {answer['to']:,}. Start its consumers again."
        )
    return 0 if status < 300 else REFUSED
