"""`kumquat groups …`: groups of a running broker, and moving them. A client of the admin endpoint.

    kumquat groups list                                              all groups
    kumquat groups describe billing                                  members, subjects, who holds what
    kumquat groups reset billing --subject orders --to earliest      (latest, or an offset)
    kumquat groups reset billing --subject orders --time 2026-03-01T08:00Z --dry-run
    kumquat groups reset billing --subject orders --time 2h          the first message of the last 2 hours
    kumquat groups skip --group billing --subject orders             go on behind the damage
    kumquat groups skip --group billing --subject orders --to 5000   go on at this offset
    kumquat groups delete billing                                    forget it, with its positions

`reset` and `skip` are for groups without members: stop the consumers first, and start them again
afterwards. `reset` forgets retries that wait, and says how many (gateway/admin/groups/reset.py);
`--dry-run` says all of it and changes nothing. `skip` is for a group that reads in order and cannot go on
because a batch is damaged (gateway/admin/groups/skip.py). `--json`, `--admin` and the exit codes are those
of `kumquat delay`. `delete` is Kafka's own request, to `--bootstrap`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kumquat.gateway.cli.bootstrap import admin_client, bootstrap_option
from kumquat.gateway.cli.command import DONE, REFUSED, Commands, Refused
from kumquat.gateway.cli.endpoint import ask, asking, json_option, report
from kumquat.gateway.cli.names import complete_groups, complete_topics
from kumquat.gateway.cli.tables import listing, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Command = TypeVar("Command", bound=Callable[..., Any])

GROUPS = {
    "GROUP": "group",
    "KIND": "kind",
    "STATE": "state",
    "MEMBERS": "members",
    "SUBJECTS": "subjects",
    "MODE": "mode",
    "LAG": "lag",
    "IN-FLIGHT": "in_flight",
    "AGAIN": "again",
    "WAITING": "waiting",
    "DOOMED": "doomed",
}
MEMBERS = {
    "MEMBER": "member",
    "INSTANCE": "instance",
    "CLIENT": "client_id",
    "HOST": "host",
    "SOFTWARE": "software",
    "GENERATION": "generation",
    "SESSION-MS": "session_ms",
    "SUBJECTS": "subjects",
}
SUBJECTS = {
    "SUBJECT": "subject",
    "MODE": "mode",
    "POSITION": "position",
    "CURSOR": "cursor",
    "END": "high_watermark",
    "LAG": "lag",
    "IN-FLIGHT": "in_flight",
    "AGAIN": "again",
    "WAITING": "waiting",
    "DOOMED": "doomed",
    "EXPIRED": "expired",
    "NEXT-RETRY": "next_due@",
}
WHY = {
    "NonEmptyGroupError": "it has members: stop its consumers first. Or dead letters cannot be written: "
    "kumquat groups describe says why",
    "GroupIdNotFoundError": "there is no such group; kumquat groups list shows them",
}
HOLDINGS = {
    "MEMBER": "member",
    "SUBJECT": "subject",
    "MESSAGES": "messages",
    "LOWEST": "lowest",
    "SINCE": "since@",
    "ATTEMPT": "attempts",
}


def _show_list(answer: Mapping[str, Any]) -> list[str]:
    groups = [{**group, "mode": _modes(group)} for group in answer["groups"]]
    lines = listing(groups, GROUPS) if groups else ["There are no groups."]
    for group in groups:
        if group["why_exclusive"]:
            lines.append(plain(f"{group['group']}: not shared, {group['why_exclusive']}"))
    return lines + _more(answer)


def _modes(group: Mapping[str, Any]) -> str:
    shared, exclusive = group["shared"], group["exclusive"]
    if shared and exclusive:
        return f"{shared} shared, {exclusive} exclusive"
    return "shared" if shared else "exclusive" if exclusive else "-"


def _show_group(answer: Mapping[str, Any]) -> list[str]:
    head = (
        f"{answer['group']}: {answer['kind']}, {answer['state']}, generation {answer['generation']}"
    )
    lines = [plain(head)]
    if answer["why_exclusive"]:
        lines.append(plain(f"Not shared: {answer['why_exclusive']}"))
    lines.append(plain(", ".join(f"{n}={v}" for n, v in answer["configs"].items())))
    for title, items, columns, count in (
        ("members", answer["members"], MEMBERS, answer["member_count"]),
        ("subjects", answer["subjects"], SUBJECTS, answer["subject_count"]),
        ("held, oldest first", answer["holdings"], HOLDINGS, answer["holding_count"]),
    ):
        if items:
            part = "" if count == len(items) else f" ({len(items)} of {count})"
            lines += ["", f"{title.capitalize()}{part}:", *listing(items, columns)]
    for subject in answer["subjects"]:
        if subject["doomed_why"]:
            text = f"dead letters cannot be written: {subject['doomed_why']}"
            lines.append(plain(f"{subject['subject']}: {text}; tried again"))
    if not answer["member_count"]:
        lines.append("It has no members.")
    return lines + _more(answer)


def _more(answer: Mapping[str, Any]) -> list[str]:
    following = answer["next"]
    return [] if following is None else [f"There are more: --after {plain(following)}"]


def _show_reset(answer: Mapping[str, Any]) -> list[str]:
    would = "goes" if answer["done"] else "would go"
    came = "had no position" if answer["from"] is None else f"stood at {answer['from']:,}"
    lines = [
        f"{answer['group']} {came} in {answer['subject']} and {would} on at {answer['to']:,}.",
        f"The end is at {answer['high_watermark']:,}.",
        f"Messages that it never gets: {answer['passed']:,}.",
        f"Messages that come once more: {answer['again']:,}.",
        f"Retries that waited and are forgotten: {answer['retries']:,}.",
        *(
            [f"Doomed messages that still become dead letters: {answer['doomed']:,}."]
            if answer["doomed"]
            else []
        ),
        "Start its consumers again." if answer["done"] else "Nothing was changed.",
    ]
    return [plain(line) for line in lines]


def _show_skip(answer: Mapping[str, Any]) -> list[str]:
    text = (
        f"{answer['group']} skips {answer['skipped']:,} offsets of {answer['subject']}, from "
        f"{answer['from']:,} on, and goes on at {answer['to']:,}. Start its consumers again."
    )
    return [plain(text)]


SHOW = {"list": _show_list, "describe": _show_group, "reset": _show_reset, "skip": _show_skip}
groups = Commands("groups", help="List, describe, reset, delete groups; skip damaged messages.")


def _run(
    action: str, method: str, path: str, admin: str, as_json: bool, values: Mapping[str, Any]
) -> int:
    """Send the request, show the answer, and return the exit code. Raises Unreachable."""
    sent = {n: v for n, v in values.items() if v is not None and v is not False}
    status, answer = ask(admin, method, path, sent)
    return report(as_json, status, answer, SHOW[action])


def _pages(what: str) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        after = click.option("--after", metavar="NAME", help="go on where an earlier answer ended")
        limit = click.option("--limit", metavar="N", help=f"at most so many {what}")
        return limit(after(command))

    return add


_group = click.argument("group", metavar="GROUP", shell_complete=complete_groups)
_subject = click.option(
    "--subject",
    required=True,
    metavar="NAME",
    help="the subject",
    shell_complete=complete_topics,
)


@groups.command("list")
@_pages("groups")
@asking
def list_groups(admin: str, as_json: bool, **values: str | None) -> int:
    """All groups, by name."""
    return _run("list", "GET", "/groups", admin, as_json, values)


@groups.command("describe")
@_group
@_pages("subjects")
@asking
def describe(admin: str, as_json: bool, **values: str | None) -> int:
    """Members of a group, how far it is, and who holds what."""
    return _run("describe", "GET", "/groups/describe", admin, as_json, values)


@groups.command("reset")
@_group
@_subject
@click.option("--to", metavar="WHERE", help="earliest, latest, or an offset")
@click.option(
    "--time",
    metavar="TIME",
    help="at the first message that is not older: a time, or how long ago (2h, 1h30m)",
)
@click.option("--dry-run", is_flag=True, help="say what would happen, do nothing")
@asking
def reset(admin: str, as_json: bool, **values: str | bool | None) -> int:
    """Have a group without members go on somewhere else in a subject."""
    if (values["to"] is None) == (values["time"] is None):
        raise click.UsageError("say where to go on: either --to or --time")
    return _run("reset", "POST", "/groups/reset", admin, as_json, values)


@groups.command("skip")
@click.option(
    "--group", required=True, metavar="NAME", help="the group", shell_complete=complete_groups
)
@_subject
@click.option("--to", metavar="N", help="the offset to go on at; else the first that can be read")
@asking
def skip(admin: str, as_json: bool, **values: str | None) -> int:
    """Have a group without members go on behind messages that are damaged."""
    return _run("skip", "POST", "/groups/skip", admin, as_json, values)


@groups.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="GROUP…", shell_complete=complete_groups)
@click.option("--yes", is_flag=True, help="do it, also at a terminal")
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> int:
    """Forget groups without members, with all their positions."""
    if not yes and sys.stdin.isatty():
        raise Refused("nothing was changed; add --yes to forget where they stand")
    with admin_client(bootstrap) as client:
        found = client.delete_groups(list(names))
    refused = {name: WHY.get(said, said) for name, said in found.items() if said != "OK"}
    if as_json:
        print(json.dumps({"deleted": [n for n in names if n not in refused], "refused": refused}))
        return REFUSED if refused else DONE
    for name in names:
        if name not in refused:
            print(plain(f"Deleted: {name}."))
    if refused:
        raise Refused(plain("; ".join(f"{name}: {why}" for name, why in refused.items())))
    return DONE
