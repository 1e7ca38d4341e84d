"""/console/produce: write one message, now or for later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.console.forms import BadForm, required
from kumquat.gateway.console.pages.subjects import find
from kumquat.gateway.console.producing import NewMessage, produce

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit

MOST_HEADERS = 32


async def show(visit: Visit) -> Response:
    subject = find(visit.broker, required(visit.values, "subject"))
    return await visit.page("produce.html", "subjects", subject=subject)


async def send(visit: Visit) -> Response:
    form = visit.form
    subject = find(visit.broker, required(form, "subject"))
    key = form.get("key")
    message = NewMessage(
        None if key is None else key.encode(),
        # A browser sends the ends of lines as \r\n, whatever was typed.
        form.get("value", "").replace("\r\n", "\n").encode(),
        _headers(form.get("headers", "")),
        form.get("delay"),
        form.get("delay_id"),
    )
    offset = await produce(visit.broker, subject, message)
    if offset < 0:
        said = f"The message is stored and will be delivered after {message.delay}."
        return visit.go("/console/delays", said, subject=subject.name)
    said = f"The message is stored at offset {offset}."
    return visit.go("/console/messages", said, subject=subject.name)


def _headers(text: str) -> list[tuple[str, bytes]]:
    """A line each: name: value."""
    found: list[tuple[str, bytes]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise BadForm(400, f"a header is written as name: value, not {line[:60]!r}")
        found.append((name.strip(), value.strip().encode()))
    if len(found) > MOST_HEADERS:
        raise BadForm(400, f"at most {MOST_HEADERS} headers, not {len(found)}")
    return found
