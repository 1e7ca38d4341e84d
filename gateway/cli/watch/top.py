"""`kumquat top`: a live view of a broker: rates, lag, lateness, who is slow.

    kumquat top                       at a terminal, every two seconds; q, Ctrl-C or SIGTERM ends it
    kumquat top --interval 10
    kumquat top --once                two looks, one picture: for scripts; --json as one object
    kumquat top --json                one object a line, until Ctrl-C

It asks /statistics, /groups and, for the groups that are furthest behind, /groups/describe of the admin
endpoint, and the ends of topics of the broker (`--bootstrap`); readings.py says what becomes of it. A
broker that goes away is said in the view, which goes on when it is back. Without a terminal it is `--once`.
"""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import tty
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import click

from kumquat.core.clock import wall_clock_ms
from kumquat.gateway.cli.bootstrap import admin_client, bootstrap_option
from kumquat.gateway.cli.command import DONE, Action, Refused, Unreachable
from kumquat.gateway.cli.endpoint import ask, asking
from kumquat.gateway.cli.tables import table
from kumquat.gateway.cli.watch.picture import drawn, sections
from kumquat.gateway.cli.watch.readings import MOST_TOPICS, ROWS, Reading, View, compare

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_GROUPS = 1000


@click.command("top", cls=Action)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    help="between two looks; 2 by default",
)
@click.option("--once", is_flag=True, help="one picture, for scripts")
@bootstrap_option
@asking
def top(interval: float, once: bool, bootstrap: str, admin: str, as_json: bool) -> int:
    """A live view: rates, lag, lateness, who is slow."""
    with ExitStack() as stack:
        source = _Source(admin, stack.enter_context(admin_client(bootstrap)))
        if as_json:
            return _stream(source, interval, once)
        if once or not sys.stdout.isatty():
            before = source.read()
            sleep(interval)
            _print(compare(before, source.read()))
            return DONE
        return _live(source, interval)


class _Source:
    """Where the numbers come from."""

    def __init__(self, admin: str, client: Any) -> None:
        self._admin = admin
        self._client = client

    def read(self) -> Reading:
        """Raises Unreachable and Refused."""
        statistics = self._ask("/statistics", {})
        groups = self._ask("/groups", {"limit": MOST_GROUPS})["groups"]
        behind = sorted(groups, key=lambda group: -(group["lag"] or 0))[:ROWS]
        described = [
            answer
            for group in behind
            if (answer := self._describe(group["group"])) is not None  # deleted meanwhile
        ]
        ends = {
            subject["subject"]: subject["high_watermark"]
            for group in described
            for subject in group["subjects"]
        }
        if statistics["log"]["subjects"] <= MOST_TOPICS:
            ends |= self._ends()
        return Reading(monotonic(), wall_clock_ms(), statistics, groups, described, ends)

    def _ask(self, path: str, values: dict[str, Any]) -> dict[str, Any]:
        status, answer = ask(self._admin, "GET", path, values)
        if status >= 300:
            raise Refused(f"{self._admin}{path}: {answer.get('message', status)}")
        return answer

    def _describe(self, group: str) -> dict[str, Any] | None:
        status, answer = ask(self._admin, "GET", "/groups/describe", {"group": group})
        return answer if status < 300 else None

    def _ends(self) -> dict[str, int]:
        from kafka import TopicPartition
        from kafka.admin import OffsetSpec
        from kafka.errors import KafkaError

        try:
            wanted = [TopicPartition(name, 0) for name in self._client.list_topics()]
            found = self._client.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        except KafkaError:  # one was deleted meanwhile, or the broker went away
            return {}
        return {place.topic: offset.offset for place, offset in found.items()}


def _stream(source: _Source, interval: float, once: bool) -> int:
    before = source.read()
    while True:
        sleep(interval)
        after = source.read()
        print(json.dumps(compare(before, after).told(), ensure_ascii=False), flush=True)
        if once:
            return DONE
        before = after


def _print(view: View) -> None:
    head, tables = sections(view)
    for line in head:
        print(line)
    for title, rows in tables:
        print()
        print(title)
        for line in table(rows):
            print(line)


def _live(source: _Source, interval: float) -> int:
    from rich.live import Live

    before = source.read()
    view = View(0.0)
    with _keys() as quit_pressed, Live(screen=True, auto_refresh=False) as live:
        live.update(drawn(view, "looking …"), refresh=True)
        while not quit_pressed(interval):
            trouble = ""
            try:
                after = source.read()
                view = compare(before, after)
                before = after
            except (Unreachable, Refused) as error:
                trouble = str(error)
            live.update(drawn(view, trouble), refresh=True)
    return DONE


@contextmanager
def _keys() -> Iterator[Any]:
    """Waits so many seconds, and says whether q was pressed. Ctrl-C stays what it is."""
    if not sys.stdin.isatty():
        yield lambda seconds: sleep(seconds)
        return
    kept = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def quit_pressed(seconds: float) -> bool:
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            if select.select([sys.stdin], [], [], left)[0]:
                pressed = os.read(sys.stdin.fileno(), 64)
                if not pressed or b"q" in pressed.lower():
                    return True
        return False

    try:
        yield quit_pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)
