"""/console/messages and /console/message: the messages of a subject, and one with its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.clock import wall_clock_ms
from kumquat.gateway.admin.times import read_past
from kumquat.gateway.console import contents
from kumquat.gateway.console.asking import Unanswered
from kumquat.gateway.console.forms import BadForm, number, required
from kumquat.gateway.console.pages.subjects import find
from kumquat.gateway.console.views import messages
from kumquat.gateway.console.views.trace import NOTHING, Trace

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit

FORMS = (contents.TEXT, contents.JSON, contents.HEX)


async def browse(visit: Visit) -> Response:
    values = visit.values
    subject = find(visit.broker, required(values, "subject"))
    if "time" in values:
        first = await messages.at_time(visit.broker, subject, _time(values["time"]))
    elif "offset" in values:
        first = number(values, "offset")
    else:
        first = messages.newest(subject)
    page = await messages.browse(visit.broker, subject, first)
    before = max(subject.earliest, page.first - messages.PAGE)
    return await visit.page(
        "messages.html",
        "subjects",
        subject=subject,
        page=page,
        newest="time" not in values and "offset" not in values,
        before=before if page.first > subject.earliest else None,
        values=values,
    )


async def show_one(visit: Visit) -> Response:
    subject = find(visit.broker, required(visit.values, "subject"))
    offset, form = number(visit.values, "offset"), visit.values.get("as")
    record = await messages.message(visit.broker, subject, offset)
    value = None if record.value is None else contents.show(record.value, form)
    return await visit.page(
        "message.html",
        "subjects",
        subject=subject,
        record=record,
        value=value,
        forms=FORMS,
        trace=await _history(visit, subject.name, offset),
    )


async def _history(visit: Visit, subject: str, offset: int) -> Trace:
    """A message can be looked at although its history cannot be read."""
    try:
        return await visit.console.traces.of(subject, offset)
    except Unanswered:
        return NOTHING


def _time(text: str) -> int:
    try:
        return read_past(text, wall_clock_ms())
    except (ValueError, OverflowError):
        raise BadForm(
            400, f"{text[:40]!r} is no time: write 15m (ago), or 2026-03-01T08:00Z"
        ) from None
