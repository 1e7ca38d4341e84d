"""How a View of `kumquat top` looks: lines about the broker, and tables of groups, members and topics.

`sections` is the text of it, for pipes too; `drawn` the same for a terminal, where what is wrong has a
colour. All names come from clients, so cells are made plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.tables import plain, rich_table, size
from kumquat.gateway.cli.watch.trace import distance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Group

    from kumquat.gateway.cli.watch.readings import View

    Column = Callable[[Mapping[str, Any]], str]


def _number(name: str) -> Column:
    return lambda row: "-" if row[name] is None else f"{row[name]:,}"


def _text(name: str) -> Column:
    return lambda row: plain(str(row[name]))


def _time(name: str, scale: int = 1) -> Column:
    return lambda row: "-" if row[name] is None else distance(int(row[name] * scale))


GROUPS: dict[str, Column] = {
    "GROUP": _text("group"),
    "STATE": _text("state"),
    "MEMBERS": _number("members"),
    "LAG": _number("lag"),
    "DONE/S": _number("done"),
    "LEFT": _time("left", 1000),
    "IN-FLIGHT": _number("in_flight"),
    "WAITING": _number("waiting"),
    "DOOMED": _number("doomed"),
}
MEMBERS: dict[str, Column] = {
    "SLOWEST MEMBER": _text("member"),
    "GROUP": _text("group"),
    "TOPIC": _text("topic"),
    "HOLDS": _number("messages"),
    "SINCE": _time("held_ms"),
    "ATTEMPT": _number("attempt"),
}
TOPICS: dict[str, Column] = {
    "TOPIC": _text("topic"),
    "IN/S": _number("in"),
    "END": _number("end"),
}


def sections(view: View) -> tuple[list[str], list[tuple[str, list[list[str]]]]]:
    """Lines about the broker; and tables with their titles, without empty ones."""
    head = _head(view.broker) if view.broker else []
    tables = [
        (title, _rows(columns, rows))
        for title, columns, rows in (
            ("Groups, furthest behind first", GROUPS, view.groups),
            ("Who has held messages longest", MEMBERS, view.members),
            ("Topics that get most", TOPICS, [row for row in view.topics if row["in"]]),
        )
        if rows
    ]
    return head, tables


def _rows(columns: Mapping[str, Column], rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [list(columns), *([column(row) for column in columns.values()] for row in rows)]


def _head(now: Mapping[str, Any]) -> list[str]:
    arriving = f"in   {now['in_messages']:,.0f} messages/s, {size(now['in_bytes'])}/s"
    leaving = f"done {now['out_messages']:,.0f}/s, handed out {now['handed_out']:,.0f}/s"
    stored = f"log  {now['subjects']:,} topics, {size(now['bytes_stored'])}"
    synced = f"{size(now['bytes_unsynced'])} not synced, {now['syncs']:,.0f} syncs/s"
    later = f"late {now['pending']:,} pending, {now['overdue']:,} overdue"
    lateness = f"lateness p99 {now['lateness_p99_ms']:,} ms, max {now['lateness_max_ms']:,} ms"
    lag = (
        f"loop lag under {now['loop_now_ms']} ms now, p99 {now['loop_p99_ms']:,} ms since its start"
    )
    dead = f"dead letters {now['dead_letters']:,.0f}/s, {now['doomed']:,} wait"
    lines = [
        f"{arriving}; {leaving}; lag {now['lag']:,}",
        f"{stored}, {synced}",
        f"{later}, {now['delivered']:,.0f} delivered/s, {lateness}",
        f"{lag}; {dead}",
    ]
    if now["fenced"]:
        lines.append(
            "FENCED: a sync has failed, nothing is acked: check the disk, restart the broker"
        )
    return lines


def drawn(view: View, trouble: str) -> Group:
    """The whole picture for a terminal; `trouble` is what is wrong at the moment."""
    from rich.console import Group
    from rich.text import Text

    head, tables = sections(view)
    title = Text("kumquat top", "bold")
    title.append(f"  over {view.seconds:.1f} s, q ends" if view.seconds else "", "dim")
    parts: list[Any] = [title]
    parts += [Text(line, "bold red" if line.startswith("FENCED") else "") for line in head]
    if trouble:
        parts.append(Text(plain(trouble), "yellow"))
    for name, rows in tables:
        parts += [Text(), Text(name, "dim"), rich_table(rows)]
    return Group(*parts)
