"""`kumquat search SUBJECT`: messages by key, header or text, in a stretch of time.

    kumquat search orders --key customer-17
    kumquat search orders --header tenant=a --since 2h --limit 50
    kumquat search orders --text 'no such customer' --since 2026-03-01 --until 2026-03-02
    kumquat search orders --text timeout --all --json | jq .offset

A client of GET /search, which uses the index of keys where the subject has one, and else reads. It answers
in parts: `--after` goes on where one ended, `--all` does so until the end. `--json` is the endpoint's
answer; with `--all` a line for each message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.cli.command import DONE, Action
from kumquat.gateway.cli.endpoint import asking, report
from kumquat.gateway.cli.names import complete_topics
from kumquat.gateway.cli.tables import json_line, listing, plain, size
from kumquat.gateway.cli.watch.messages import ask_route, headers, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COLUMNS = {
    "OFFSET": "offset",
    "TIME": "timestamp@",
    "KEY": "key",
    "HEADERS": "headers",
    "SIZE": "size",
    "VALUE": "value",
}


@click.command("search", cls=Action)
@click.argument("subject", metavar="SUBJECT", shell_complete=complete_topics)
@click.option("--key", metavar="TEXT", help="with this key")
@click.option("--header", metavar="NAME=VALUE", help="with this header")
@click.option("--text", metavar="TEXT", help="with this text in the value")
@click.option("--since", metavar="TIME", help="not older: a time, or how long ago (2h)")
@click.option("--until", metavar="TIME", help="before this time")
@click.option("--order", type=click.Choice(["newest", "oldest"]), help="which come first")
@click.option("--limit", metavar="N", help="at most so many in one answer")
@click.option("--after", metavar="OFFSET", help="go on where an earlier answer ended")
@click.option("--all", "everything", is_flag=True, help="go on until the end")
@asking
def search(subject: str, everything: bool, admin: str, as_json: bool, **query: str | None) -> int:
    """Messages by key, header or text."""
    given = {name: value for name, value in query.items() if value is not None}
    if not given.keys() & {"key", "header", "text"}:
        raise click.UsageError("say what to search for: --key, --header or --text")
    values = {"subject": subject, **given}
    while True:
        status, answer = ask_route(admin, "/search", values)
        following = answer.get("next")
        if not everything or status >= 300:
            return report(as_json, status, answer, show)
        for message in answer["messages"] if as_json else ():
            print(json_line(message))
        if not as_json and answer["messages"]:
            print("\n".join(_rows(answer)))
        if following is None:
            return DONE
        values["after"] = str(following)


def _rows(answer: Mapping[str, Any]) -> list[str]:
    items = [
        {
            **message,
            "key": shown(message["key"]),
            "headers": headers(message["headers"]),
            "value": shown(message["value"]),
        }
        for message in answer["messages"]
    ]
    return listing(items, COLUMNS)


def show(answer: Mapping[str, Any]) -> Iterator[str]:
    if answer["messages"]:
        yield from _rows(answer)
    else:
        yield "There are no such messages." if answer["next"] is None else "Nothing so far."
    scanned = answer.get("scanned") or {}
    if "bytes" in scanned:
        how = "index of keys" if answer.get("by") == "index" else "reading"
        yield plain(
            f"Found by {how}: {scanned['batches']:,} batches, {size(scanned['bytes'])}, offsets "
            f"{scanned['from']} to {scanned['to']}."
        )
    for part in answer.get("unreadable", ()):
        yield plain(f"Offsets {part['from']} to {part['to']} could not be read: {part['why']}")
    if answer["next"] is not None:
        yield f"There are more: --after {answer['next']}"
