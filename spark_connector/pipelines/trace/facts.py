"""What a trace knows: times and counts by group and member, and the life of one message. No Spark in here.

All times are milliseconds. For one message and one group:

- *first delivery*: from when the message was stored to when a member was first given it. Known in groups
  that share; a plain Fetch names no group.
- *handling*: from the last delivery to the ack, counted for the member that acked.
- *done*: from when it was stored to the ack.

A message counts as *open* when it was delivered and is neither acked nor dead. `missed` events are those
that the broker dropped because its buffer was full: with any, the figures are a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kumquat.spark.pipelines.common.summary import Summary, Table, count, duration
from kumquat.spark.pipelines.common.times import told_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOT_SHOWN = ("at", "event", "subject", "ranges")
"""Fields of an event that its row shows in columns of their own, or that are the same in all rows."""


@dataclass(frozen=True)
class Waits:
    """How long something took, over many messages."""

    messages: int
    p50: int
    p99: int
    longest: int

    def cells(self) -> list[str]:
        return [duration(ms / 1000) for ms in (self.p50, self.p99, self.longest)]


@dataclass(frozen=True)
class GroupFacts:
    group: str
    acked: int
    open: int
    again: int
    """Messages that were delivered more than once."""
    most_attempts: int | None
    """None: it reads in order, where attempts are not counted."""
    dead: int
    first_delivery: Waits | None
    handling: Waits | None
    done: Waits | None


@dataclass(frozen=True)
class MemberFacts:
    group: str
    member: str
    client: str
    handling: Waits


@dataclass(frozen=True)
class Trace:
    subject: str
    source: str
    stored: int
    """Messages whose storing is in the history."""
    missed: int
    groups: Sequence[GroupFacts]
    members: Sequence[MemberFacts]
    """The slowest first."""


@dataclass(frozen=True)
class Life:
    """The events of one message, oldest first."""

    subject: str
    offset: int
    source: str
    events: Sequence[Mapping[str, object]]


def trace_summary(trace: Trace, slowest: int) -> Summary:
    values = [("source", trace.source), ("stored", count(trace.stored, "message"))]
    if trace.missed:
        missed = f"{count(trace.missed, 'event')} did not fit into the broker's buffer"
        values.append(("missed", f"{missed}: the figures leave them out"))
    if not trace.groups and not trace.stored:
        values.append(("hint", f"no history of {trace.subject}: set its config history=all"))
    tables = [_groups_table(trace.groups)] if trace.groups else []
    if trace.members:
        tables.append(_members_table(trace.members[:slowest]))
    return Summary(f"trace: {trace.subject}", values, tables)


def _groups_table(groups: Sequence[GroupFacts]) -> Table:
    heads = ["group", "acked", "open", "again", "attempts", "dead"]
    for what in ("first delivery", "handling", "done"):
        heads += [f"{what} p50", "p99", "max"]
    rows = []
    for group in groups:
        attempts = "" if group.most_attempts is None else str(group.most_attempts)
        counts = [count(group.acked), count(group.open), count(group.again), attempts]
        waits = (group.first_delivery, group.handling, group.done)
        cells = [cell for each in waits for cell in (each.cells() if each else [""] * 3)]
        rows.append([group.group, *counts, count(group.dead), *cells])
    return Table(heads, rows)


def _members_table(members: Sequence[MemberFacts]) -> Table:
    heads = ["group", "member", "client", "acked", "handling p50", "p99", "max"]
    rows = [
        [one.group, one.member, one.client, count(one.handling.messages), *one.handling.cells()]
        for one in members
    ]
    return Table(heads, rows, "members, the slowest first")


def life_summary(life: Life) -> Summary:
    values = [("source", life.source), ("events", count(len(life.events)))]
    if not life.events:
        values.append(("hint", "nothing is recorded of it: see the subject's config history"))
        return Summary(f"trace: {life.subject} {life.offset}", values)
    rows = [[told_time(_number(e["at"])), str(e["event"]), _rest(e)] for e in life.events]
    return Summary(
        f"trace: {life.subject} {life.offset}", values, [Table(["time", "event", ""], rows)]
    )


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _rest(event: Mapping[str, object]) -> str:
    """group billing, member c-1, attempt 2"""
    shown = {name: value for name, value in event.items() if value is not None}
    if "due" in shown:
        shown["due"] = told_time(_number(shown["due"]))
    return ", ".join(f"{name} {value}" for name, value in shown.items() if name not in NOT_SHOWN)
