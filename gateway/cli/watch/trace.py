"""`kumquat trace SUBJECT OFFSET`: the life of one message, from its arrival to where it is now.

    kumquat trace orders 17
    kumquat trace orders --key customer-17          the newest with that key
    kumquat trace orders --header order-id=4711     the newest with that header
    kumquat trace orders --delay-id order-17        a message for later, by its name

A client of GET /trace. What happened is known as far as the history of the subject is on; where the message
is now, in each group, is known always. Times are UTC; `AFTER` is the time since the line above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.cli.command import Action
from kumquat.gateway.cli.endpoint import asking, report
from kumquat.gateway.cli.names import complete_topics
from kumquat.gateway.cli.tables import listing, plain, size, time_or_dash
from kumquat.gateway.cli.watch.messages import ask_route, headers, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EVENTS = {
    "AT": "at@",
    "AFTER": "after",
    "EVENT": "event",
    "GROUP": "group",
    "MEMBER": "member",
    "WHAT": "text",
}
GROUPS = {
    "GROUP": "group",
    "STATE": "state",
    "MEMBER": "member",
    "SINCE": "since@",
    "DUE": "due@",
    "ATTEMPT": "attempt",
}
LETTERS = {"DEAD LETTER": "subject", "OFFSET": "offset", "GROUP": "group", "REASON": "reason"}
LONGEST_TEXT = 200
"""What happened is told in a sentence: it is not cut as other cells are."""
OFF = {
    "off": "The history of {} is off: only where the message is now is known.",
    "sampled": "The history of {} is sampled: not all that happened is known.",
}


@click.command("trace", cls=Action)
@click.argument("subject", metavar="SUBJECT", shell_complete=complete_topics)
@click.argument("offset", metavar="[OFFSET]", required=False)
@click.option("--key", metavar="TEXT", help="the newest message with this key")
@click.option("--header", metavar="NAME=VALUE", help="the newest message with this header")
@click.option("--delay-id", "id", metavar="ID", help="the message for later with this name")
@asking
def trace(subject: str, admin: str, as_json: bool, **which: str | None) -> int:
    """The life of one message, as a table."""
    given = {name: value for name, value in which.items() if value is not None}
    if len(given) != 1:
        raise click.UsageError("say which message: OFFSET, --key, --header or --delay-id")
    status, answer = ask_route(admin, "/trace", {"subject": subject, **given})
    return report(as_json, status, answer, show)


def show(answer: Mapping[str, Any]) -> Iterator[str]:
    yield from _head(answer)
    for items, columns in (
        (list(_with_distances(answer["events"])), EVENTS),
        (answer.get("groups"), GROUPS),
        (answer.get("letters"), LETTERS),
    ):
        if items:
            yield ""
            yield from listing(items, columns, LONGEST_TEXT)
    if notes := [plain(note) for note in _notes(answer)]:
        yield ""
        yield from notes


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    """Why it may not be all."""
    subject = answer["subject"]
    if answer["history"] in OFF:
        yield OFF[answer["history"]].format(subject)
        yield f"From now on all is known with: kumquat configs set --topic {subject} history=all"
    elif not answer["events"]:
        yield "The history has nothing on it: it may be older than the history."
    if answer.get("cut"):
        yield "There may be more: the search was ended before it was complete."


def _head(answer: Mapping[str, Any]) -> Iterator[str]:
    if "offset" not in answer:
        yield plain(
            f"{answer['subject']}, message for later {answer['delay_id'] or answer['schedule_id']}"
        )
        if delay := answer.get("delay"):
            due = delay.get("due")
            when = f", due {time_or_dash(due)}" if due and due > 0 else ""
            yield plain(f"It is {delay['state']}{when}.")
        return
    yield plain(f"{answer['subject']}, offset {answer['offset']}")
    message = answer["message"]
    if message is None:
        yield "The message itself is not there any more, or never was."
        return
    yield plain(f"key:      {shown(message['key'])}")
    yield plain(f"time:     {time_or_dash(message['timestamp'])}")
    yield f"stored:   {time_or_dash(message['stored'])}"
    yield f"size:     {size(message['size'])}"
    if message["headers"]:
        yield plain(f"headers:  {headers(message['headers'])}")


def _with_distances(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    before: int | None = None
    for event in events:
        yield {**event, "after": "" if before is None else distance(event["at"] - before)}
        before = event["at"]


def distance(ms: int) -> str:
    """A time between two events, as people say it."""
    if abs(ms) < 1000:
        return f"{ms} ms"
    seconds = ms / 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
