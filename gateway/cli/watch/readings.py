"""What `kumquat top` shows: numbers of the broker at two moments, and what follows from them.

A Reading is what was asked at one moment. `compare` makes a View of two of them: rates, and the groups and
members that are behind, the worst first. Pure.

    in     messages and bytes that topics got; of more than MOST_TOPICS only those count that groups read
    done   messages that a group finished: by how much the end of its topics has moved away from its lag
    held   since when a member of a sharing group has not finished what it was given
    loop   how late the event loop was: 99 % of the looks between the two moments were below this bound
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_TOPICS = 2000
ROWS = 10


@dataclass(frozen=True, slots=True)
class Reading:
    """`ends`: topic → its high watermark. `groups`: what /groups lists. `described`: /groups/describe of
    those that are furthest behind. `at`: steady seconds; `now`: ms since 1970."""

    at: float
    now: int
    statistics: Mapping[str, Any]
    groups: Sequence[Mapping[str, Any]]
    described: Sequence[Mapping[str, Any]]
    ends: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class View:
    """What is shown; rates are per second."""

    seconds: float
    broker: dict[str, Any] = field(default_factory=dict)
    topics: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        return asdict(self)


def compare(before: Reading, after: Reading) -> View:
    seconds = max(after.at - before.at, 1e-3)
    topics = _topics(before, after, seconds)
    groups = _groups(before, after, seconds)
    return View(
        round(seconds, 3),
        {
            "in_messages": sum(topic["in"] for topic in topics),
            "in_bytes": _rate(before, after, seconds, "log", "bytes_stored"),
            "out_messages": sum(group["done"] or 0 for group in groups),
            "lag": sum(group["lag"] or 0 for group in after.groups),
            **_standing(before, after, seconds),
        },
        sorted(topics, key=lambda topic: -topic["in"])[:ROWS],
        groups[:ROWS],
        _members(after),
    )


def _rate(before: Reading, after: Reading, seconds: float, part: str, name: str) -> float:
    """Of a counter; after a restart it begins again, and so does its rate."""
    grown: int = after.statistics[part][name] - before.statistics[part][name]
    return round(max(0, grown) / seconds, 1)


def _lag_bound(before: Reading, after: Reading) -> str:
    """The bound of the bucket in which the 99th percentile lies; "1" if there was no look."""
    earlier, later = before.statistics["loop"]["buckets_ms"], after.statistics["loop"]["buckets_ms"]
    grown = {bound: max(0, count - earlier.get(bound, 0)) for bound, count in later.items()}
    left = sum(grown.values()) * 0.99
    for bound, count in grown.items():
        left -= count
        if left <= 0:
            return str(bound)
    return "1"


def _standing(before: Reading, after: Reading, seconds: float) -> dict[str, Any]:
    """The rest of the first lines: what is as it is now."""
    log, delay = after.statistics["log"], after.statistics["delay"]
    loop, letters = after.statistics["loop"], after.statistics["dead_letters"]
    return {
        "subjects": log["subjects"],
        "bytes_stored": log["bytes_stored"],
        "bytes_unsynced": log["bytes_unsynced"],
        "syncs": _rate(before, after, seconds, "log", "syncs"),
        "fenced": log["fenced"] or after.statistics["groups"]["fenced"],
        "pending": delay["pending"],
        "overdue": delay["overdue"],
        "delivered": _rate(before, after, seconds, "delay", "delivered"),
        "lateness_p99_ms": delay["lateness"]["p99"],
        "lateness_max_ms": delay["lateness"]["max"],
        "loop_now_ms": _lag_bound(before, after),
        "loop_p99_ms": round(loop["p99"] / 1000, 1),
        "loop_max_ms": round(loop["max"] / 1000, 1),
        "handed_out": _rate(before, after, seconds, "sharing", "messages"),
        "dead_letters": _rate(before, after, seconds, "dead_letters", "written"),
        "doomed": letters["waiting"],
    }


def _topics(before: Reading, after: Reading, seconds: float) -> list[dict[str, Any]]:
    return [
        {"topic": name, "in": round((end - before.ends[name]) / seconds, 1), "end": end}
        for name, end in after.ends.items()
        if name in before.ends and end >= before.ends[name]
    ]


def _groups(before: Reading, after: Reading, seconds: float) -> list[dict[str, Any]]:
    """Those furthest behind first."""
    earlier = {group["group"]: _done(group) for group in before.described}
    done = {
        group["group"]: max(0, _done(group) - earlier[group["group"]]) / seconds
        for group in after.described
        if group["group"] in earlier
    }
    rows = []
    for group in after.groups:
        rate = done.get(group["group"])
        lag = group["lag"] or 0
        rows.append(
            {
                "group": group["group"],
                "state": group["state"],
                "members": group["members"],
                "lag": lag,
                "done": None if rate is None else round(rate, 1),
                "left": None if not rate or not lag else round(lag / rate, 1),
                **{name: group[name] for name in ("in_flight", "waiting", "doomed")},
            }
        )
    return sorted(rows, key=lambda row: -row["lag"])


def _done(group: Mapping[str, Any]) -> int:
    """How many messages a group has behind it, in the topics of which it has a position."""
    return sum(
        subject["high_watermark"] - subject["lag"]
        for subject in group["subjects"]
        if subject["lag"] is not None
    )


def _members(after: Reading) -> list[dict[str, Any]]:
    """Who has held messages longest."""
    held = [
        {
            "group": group["group"],
            "member": holding["member"],
            "topic": holding["subject"],
            "messages": holding["messages"],
            "held_ms": max(0, after.now - holding["since"]),
            "attempt": holding["attempts"],
        }
        for group in after.described
        for holding in group["holdings"]
        if holding["since"]
    ]
    return sorted(held, key=lambda row: -row["held_ms"])[:ROWS]
