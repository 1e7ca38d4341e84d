"""Which letters a request means, and where to go on: from its arguments.

A cursor is `SEQUENCE@SUBJECT`: that letter, those behind it, then the subjects whose names follow. A part
of a redrive is of one subject alone; where a request names none, the next part may be of the next one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.delivery.actions import REASONS
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP, Filter
from kumquat.gateway.admin.http import HttpError

if TYPE_CHECKING:
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker

FILTERS = ("subject", "origin", "group", "reason", "key", "header", "since", "until")
_CURSOR = re.compile(r"([0-9]{1,18})@(.+)", re.ASCII)


class Place(NamedTuple):
    """A subject, and the letter behind which to go on; -1: at its beginning."""

    subject: str
    after: int


def filter_of(arguments: Arguments) -> Filter:
    key, reason = arguments.text("key"), arguments.text("reason")
    if reason is not None and reason not in REASONS:
        raise _bad(f"reason must be one of {', '.join(REASONS)}, not {reason!r}")
    return Filter(
        origin=arguments.text("origin"),
        group=arguments.text("group"),
        reason=reason,
        since=arguments.past("since"),
        until=arguments.past("until"),
        key=None if key is None else key.encode(),
        header=_header(arguments.text("header")),
    )


def _header(text: str | None) -> tuple[str, bytes] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise _bad(f"header must be name=value, not {text!r}")
    return name, value.encode()


def place_of(broker: Broker, arguments: Arguments) -> Place | None:
    """Where this part begins; None: there is no subject left."""
    subject, after = arguments.text("subject"), arguments.text("after")
    if after is not None:
        match = _CURSOR.fullmatch(after)
        if match is None or (subject is not None and match[2] != subject):
            raise _bad(f"after must be what an earlier answer gave, not {after!r}")
        return Place(match[2], int(match[1]) - 1)
    return Place(subject, -1) if subject is not None else _following(broker, "")


def following(
    broker: Broker, arguments: Arguments, place: Place, after: int | None
) -> Place | None:
    """Where the next part begins, if this one has come to `after`, or (None) to the end of its subject."""
    if after is not None:
        return Place(place.subject, after)
    if arguments.text("subject") is not None:
        return None
    return _following(broker, place.subject)


def cursor(place: Place | None) -> str | None:
    """What an answer gives as `next`."""
    return None if place is None else f"{place.after + 1}@{place.subject}"


def _following(broker: Broker, name: str) -> Place | None:
    found = min((each for each in dead_subjects(broker) if each > name), default=None)
    return None if found is None else Place(found, -1)


def dead_subjects(broker: Broker) -> list[str]:
    """All that dead letters were written to."""
    group = broker.coordinator.groups.by_name.get(INTERNAL_GROUP)
    by_id = broker.log.subjects.by_id
    return (
        []
        if group is None
        else [by_id[subject_id].name for subject_id in group.progress if subject_id in by_id]
    )


def _bad(message: str) -> HttpError:
    return HttpError(400, "INVALID_ARGUMENT", message)
