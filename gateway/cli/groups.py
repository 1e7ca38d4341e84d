"""`kumquat groups …`: groups of a running broker, and moving them. A client of the admin endpoint.

    kumquat groups list                                              all groups
    kumquat groups describe billing                                  members, subjects, who holds what
    kumquat groups reset billing --subject orders --to earliest      (latest, or an offset)
    kumquat groups reset billing --subject orders --time 2026-03-01T08:00Z --dry-run
    kumquat groups reset billing --subject orders --time 2h          the first message of the last 2 hours
    kumquat groups skip --group billing --subject orders             go on behind the damage
    kumquat groups skip --group billing --subject orders --to 5000   go on at this offset

`reset` and `skip` are for groups without members: stop the consumers first, and start them again
afterwards. `reset` forgets retries that wait, and says how many (gateway/admin/groups/reset.py);
`--dry-run` says all of it and changes nothing. `skip` is for a group that reads in order and cannot go on
because a batch is damaged (gateway/admin/groups/skip.py). `--json`, `--admin` and the exit codes are those
of `kumquat delay`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.endpoint import add_flags, address, ask, report
from kumquat.gateway.cli.tables import listing, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

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
HOLDINGS = {
    "MEMBER": "member",
    "SUBJECT": "subject",
    "MESSAGES": "messages",
    "LOWEST": "lowest",
    "SINCE": "since@",
    "ATTEMPT": "attempts",
}


def add_commands(parser: argparse.ArgumentParser) -> None:
    """The commands below `kumquat groups`."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        add_flags(added)
        return added

    def pages(action: argparse.ArgumentParser, what: str) -> None:
        action.add_argument("--limit", metavar="N", help=f"at most so many {what}")
        action.add_argument("--after", metavar="NAME", help="go on where an earlier answer ended")

    pages(command("list", "all groups, by name"), "groups")
    describe = command("describe", "members of a group, how far it is, and who holds what")
    describe.add_argument("group", metavar="GROUP")
    pages(describe, "subjects")
    reset = command("reset", "have a group without members go on somewhere else in a subject")
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("--subject", required=True, metavar="NAME", help="the subject")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="WHERE", help="earliest, latest, or an offset")
    where.add_argument(
        "--time",
        metavar="TIME",
        help="at the first message that is not older: a time, or how long ago (2h, 1h30m)",
    )
    reset.add_argument("--dry-run", action="store_true", help="say what would happen, do nothing")
    skip = command("skip", "have a group without members go on behind messages that are damaged")
    skip.add_argument("--group", required=True, metavar="NAME", help="the group")
    skip.add_argument("--subject", required=True, metavar="NAME", help="the subject")
    skip.add_argument(
        "--to", metavar="N", help="the offset to go on at; else the first that can be read"
    )


REQUESTS = {
    "list": ("GET", "/groups", ("limit", "after")),
    "describe": ("GET", "/groups/describe", ("group", "limit", "after")),
    "reset": ("POST", "/groups/reset", ("group", "subject", "to", "time", "dry_run")),
    "skip": ("POST", "/groups/skip", ("group", "subject", "to")),
}


def run(parsed: argparse.Namespace) -> int:
    """Send the request, show the answer, and return the exit code. Raises Unreachable."""
    method, path, names = REQUESTS[parsed.action]
    values = {n: v for n in names if (v := getattr(parsed, n)) is not None and v is not False}
    status, answer = ask(address(parsed), method, path, values)
    return report(parsed, status, answer, SHOW[parsed.action])


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
