"""`kumquat delay …`: what is pending in a running broker, and changing it. A client of its admin endpoint.

    kumquat delay count  --subject orders --from 2026-03-01 --to 2026-03-02
    kumquat delay list   --subject orders --limit 20 [--after CURSOR]
    kumquat delay show   --subject orders --id order-17
    kumquat delay cancel --subject orders --id order-17          (or --schedule-id, as a list shows it)
    kumquat delay move   --subject orders --id order-17 --due 2026-03-01T09:00Z      (or --due 2h)

Times are ISO 8601 (UTC where they name no zone), milliseconds since 1970, or durations from now: `15m`,
`+2h`, `1h30m` (units w, d, h, m, s, ms). `--json` shows the endpoint's own answer. The address of the
endpoint is `--admin`, else KUMQUAT_ADMIN_LISTENER, else http://127.0.0.1:9093.

Exit codes: 0 done; 1 the broker refuses (no such message, already delivered, a bad argument); 2 the command
is wrong, or the endpoint cannot be reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.admin.times import show_time
from kumquat.gateway.cli.command import Action, Commands
from kumquat.gateway.cli.endpoint import ask, asking, given, report
from kumquat.gateway.cli.names import complete_topics
from kumquat.gateway.cli.tables import plain, table

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Command:
    help: str
    method: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


COMMANDS = {
    "list": Command(
        "messages that are pending, in order of due time",
        "GET",
        (),
        ("subject", "from", "to", "limit", "after"),
    ),
    "count": Command("how many messages are pending", "GET", (), ("subject", "from", "to")),
    "show": Command(
        "what became of a message with a delay id", "GET", ("subject", "id"), switches=("value",)
    ),
    "cancel": Command(
        "have a message never delivered", "POST", ("subject",), ("id", "schedule_id")
    ),
    "move": Command(
        "have a message delivered at another time",
        "POST",
        ("subject", "due"),
        ("id", "schedule_id"),
    ),
}
FLAGS = {
    "subject": ("NAME", "the subject; for list and count all of them if it is left out"),
    "from": ("TIME", "due at this time or later"),
    "to": ("TIME", "due before this time"),
    "limit": ("N", "at most so many"),
    "after": ("CURSOR", "go on where an earlier list ended"),
    "id": ("ID", "the message's qmq-delay-id"),
    "schedule_id": ("N", "the message's schedule id, as a list shows it"),
    "due": ("TIME", "when it is to be delivered: a time, or a duration from now (15m, 1h30m)"),
}
SWITCHES = {"value": "show what is in the message too, while it is pending"}


def _action(name: str, command: Command) -> click.Command:
    """A command of `kumquat delay`."""
    flags = (*command.required, *command.optional, *command.switches)

    def run(admin: str, as_json: bool, **values: str | None) -> int:
        status, answer = ask(admin, command.method, f"/delay/{name}", given(values, *flags))
        return report(as_json, status, answer, SHOW[name])

    params: list[click.Parameter] = []
    for flag in (*command.required, *command.optional):
        metavar, text = FLAGS[flag]
        params.append(
            click.Option(
                [f"--{flag.replace('_', '-')}"],
                metavar=metavar,
                help=text,
                required=flag in command.required,
                shell_complete=complete_topics if flag == "subject" else None,
            )
        )
    params += [
        click.Option([f"--{s}"], is_flag=True, flag_value="true", default=None, help=SWITCHES[s])
        for s in command.switches
    ]
    asked = click.command(name, cls=Action, params=params, help=command.help)(asking(run))
    assert isinstance(asked, click.Command)
    return asked


def _show_list(answer: Mapping[str, Any]) -> list[str]:
    rows = [("DUE", "SUBJECT", "ID", "KEY", "SIZE", "CREATED", "SCHEDULE-ID")]
    rows += [
        (
            show_time(item["due"]),
            item["subject"],
            item["id"] or "-",
            "-" if item["key"] is None else item["key"],
            str(item["size"]),
            show_time(item["created"]),
            str(item["schedule_id"]),
        )
        for item in answer["items"]
    ]
    lines = table(rows)
    if answer["next"] is not None:
        lines.append(f"There are more: --after {answer['next']}")
    return lines if answer["items"] else ["Nothing is pending there."]


def _show_count(answer: Mapping[str, Any]) -> list[str]:
    return [str(answer["count"])]


def _show_one(answer: Mapping[str, Any]) -> list[str]:
    shown = dict(answer)
    for name in ("due", "created"):
        if isinstance(shown.get(name), int):
            shown[name] = show_time(shown[name])
    width = max(map(len, shown))
    return [
        f"{name:<{width}}  {plain(str(value))}"
        for name, value in shown.items()
        if value is not None
    ]


SHOW = {
    "list": _show_list,
    "count": _show_count,
    "show": _show_one,
    "cancel": _show_one,
    "move": _show_one,
}

delay = Commands("delay", help="List, count, show, cancel, move what is pending.")
for _name, _command in COMMANDS.items():
    delay.add_command(_action(_name, _command))
