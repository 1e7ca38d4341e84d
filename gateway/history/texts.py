"""Events of the history as lines for people: what happened, by whom, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.core.delivery import history as groups
from kumquat.gateway.history import events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Told = Mapping[str, Any]

_REASONS = {
    groups.LEFT: "the member left",
    groups.SESSION: "the member's session ended",
    groups.REBALANCE: "the group was rebalanced",
    groups.LOCK: "the member held it for too long",
    groups.ASKED: "the client asked for it",
    groups.RETURNED: "the member gave it back",
}


def text_of(event: Told) -> str:
    tell = _TEXTS.get(event.get("event", ""))
    try:
        return str(event.get("event")) if tell is None else tell(event)
    except (KeyError, TypeError, ValueError):  # written by another version
        return str(event.get("event"))


def _produced(event: Told) -> str:
    if event.get("origin"):
        return f"stored: it came from {event['origin']}"
    if event.get("producer") is None and event.get("address") is None:
        return "stored"
    return f"produced by client {event['producer']!r} from {event['address']}"


def _pulled(event: Told) -> str:
    times = "" if event["attempt"] == 1 else f", attempt {event['attempt']}"
    return f"handed to {_member(event)} of group {event['group']}{times}"


def _acked(event: Told) -> str:
    if event.get("first"):
        return f"below the first commit of group {event['group']} (it may have begun to read behind it)"
    return f"acked by {_member(event)} of group {event['group']}"


def _rewound(event: Told) -> str:
    return f"the position of group {event['group']} was set back: it comes again"


def _released(event: Told) -> str:
    return f"given back by {_member(event)} of group {event['group']}: {_reason(event)}; it comes again"


def _retried(event: Told) -> str:
    wait = max(0, event["due"] - event["at"]) / 1000
    when = f"in {wait:g} s" if wait else "at once"
    return (
        f"not handled by {_member(event)} of group {event['group']}: {_reason(event)}; "
        f"attempt {event['attempt']} comes {when}"
    )


def _died(event: Told) -> str:
    times = "1 delivery" if event["attempts"] == 1 else f"{event['attempts']} deliveries"
    said = f" ({event['text']})" if event.get("text") else ""
    return f"given up for group {event['group']} after {times}: {event['reason']}{said}"


def _buried(event: Told) -> str:
    return f"its dead letter for group {event['group']} is in {event['letters']}"


def _redriven(event: Told) -> str:
    return f"its dead letter was sent back to {event['to']}, as offset {event['offset']}"


def _scheduled(event: Told) -> str:
    name = f", delay id {event['delay_id']!r}" if event.get("delay_id") else ""
    wait = (event["due"] - event["at"]) / 1000
    return f"taken in for later, due in {wait:g} s (schedule id {event['schedule_id']}{name})"


def _delivered(event: Told) -> str:
    return f"was due and delivered, {event['late_ms']} ms late"


def _cancelled(event: Told) -> str:
    return f"cancelled (schedule id {event['schedule_id']})"


def _moved(event: Told) -> str:
    wait = (event["due"] - event["at"]) / 1000
    return f"moved: due in {wait:g} s (schedule id {event['schedule_id']}, now {event.get('to')})"


def _missed(event: Told) -> str:
    return f"{event['count']} events were dropped here: some may be of this message"


def _member(event: Told) -> str:
    member, client = event.get("member"), event.get("client")
    if member is None:
        return "a client" if client is None else f"client {client!r}"
    return f"member {member}"


def _reason(event: Told) -> str:
    return _REASONS.get(event.get("reason") or "", event.get("reason") or "no reason is known")


_TEXTS: dict[str, Callable[[Told], str]] = {
    events.PRODUCED: _produced,
    groups.PULLED: _pulled,
    groups.ACKED: _acked,
    groups.REWOUND: _rewound,
    groups.RELEASED: _released,
    groups.RETRIED: _retried,
    groups.DIED: _died,
    events.BURIED: _buried,
    events.REDRIVEN: _redriven,
    events.SCHEDULED: _scheduled,
    events.DELIVERED: _delivered,
    events.CANCELLED: _cancelled,
    events.MOVED: _moved,
    events.MISSED: _missed,
}
