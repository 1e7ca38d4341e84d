"""/delay/…: what is pending, by subject and due time; cancelling and moving it.

    GET  /delay/count?subject=S&from=T&to=T                      {"count": 12}
    GET  /delay/list?subject=S&from=T&to=T&after=C&limit=N       {"items": [...], "next": C or null}
    GET  /delay/show?subject=S&id=ID&value=true                  what became of a message with a delay id
    POST /delay/cancel  {"subject": S, "id": ID or "schedule_id": N}     the same, afterwards
    POST /delay/move    {"subject": S, "id": ID or "schedule_id": N, "due": T}

Without a subject, count and list are over all of them. `from` is included, `to` is not. Times in answers
are milliseconds since 1970, UTC. Keys and values that are not UTF-8 are given in base64, and "key_encoding"
or "value_encoding" says so; a long key is cut to MAX_KEY bytes in lists.

A cancel or move that came too late is answered 409 with what became of the message, and one of an unknown
message 404.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.core.wheel.service import Cursor
from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.lookup import find_subject
from kumquat.gateway.admin.texts import as_text
from kumquat.meta.values import LONG_MAX

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.wheel.service import Pending, Shown
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_KEY = 1024
STATUS = {"delivered": 409, "unknown": 404}


async def count(broker: Broker, arguments: Arguments) -> Answer:
    subject, due_from, due_to = _range(broker, arguments)
    return Answer(200, {"count": await broker.delay.count(subject, due_from, due_to)})


async def list_pending(broker: Broker, arguments: Arguments) -> Answer:
    subject, due_from, due_to = _range(broker, arguments)
    limit = arguments.number("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT
    after = _read_cursor(arguments.text("after"))
    page = await broker.delay.list(subject, due_from, due_to, after, limit)
    following = None if page.next is None else _show_cursor(page.next)
    return Answer(200, {"items": [_pending(item) for item in page.items], "next": following})


async def show(broker: Broker, arguments: Arguments) -> Answer:
    subject = find_subject(broker, arguments.required("subject"))
    delay_id = arguments.required("id")
    content = arguments.flag("value")
    shown = await broker.delay.show(subject, delay_id, content=content)
    return Answer(404 if shown.status == "unknown" else 200, _shown(subject, shown))


async def cancel(broker: Broker, arguments: Arguments) -> Answer:
    subject = find_subject(broker, arguments.required("subject"))
    delay_id, schedule_id = _target(arguments)
    shown = await broker.delay.cancel(subject, delay_id=delay_id, schedule_id=schedule_id)
    return Answer(STATUS.get(shown.status, 200), _shown(subject, shown))


async def move(broker: Broker, arguments: Arguments) -> Answer:
    subject = find_subject(broker, arguments.required("subject"))
    delay_id, schedule_id = _target(arguments)
    due = arguments.time("due")
    if due is None:
        raise HttpError(400, "INVALID_ARGUMENT", "due is missing: the time to move it to")
    shown = await broker.delay.move(subject, delay_id=delay_id, schedule_id=schedule_id, due=due)
    return Answer(STATUS.get(shown.status, 200), _shown(subject, shown))


def _range(broker: Broker, arguments: Arguments) -> tuple[Subject | None, int, int]:
    name = arguments.text("subject")
    due_from, due_to = arguments.time("from"), arguments.time("to")
    return (
        None if name is None else find_subject(broker, name),
        0 if due_from is None else due_from,
        LONG_MAX if due_to is None else due_to,
    )


def _target(arguments: Arguments) -> tuple[str | None, int | None]:
    """The delay id or the schedule id of the message that is meant."""
    delay_id, schedule_id = arguments.text("id"), arguments.number("schedule_id")
    if (delay_id is None) == (schedule_id is None):
        raise HttpError(400, "INVALID_ARGUMENT", "say which message: give either id or schedule_id")
    return delay_id, schedule_id


def _show_cursor(cursor: Cursor) -> str:
    return "-".join(map(str, cursor))


def _read_cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    try:
        return Cursor(*map(int, text.split("-")))
    except (TypeError, ValueError):
        raise HttpError(
            400, "INVALID_ARGUMENT", f"after must be what an earlier list gave, not {text!r}"
        ) from None


def _pending(item: Pending) -> dict[str, Any]:
    return {
        "subject": item.subject,
        "schedule_id": item.schedule_id,
        "id": item.delay_id,
        "due": item.due,
        "created": item.created,
        **as_text("key", None if item.key is None else item.key[:MAX_KEY]),
        "size": item.size,
    }


def _shown(subject: Subject, shown: Shown) -> dict[str, Any]:
    """What is absent is null. A cancel that waits for its message has no due time."""
    timeless = shown.due < 0 or shown.status == "remembered"
    answer: dict[str, Any] = {
        "subject": subject.name,
        "status": shown.status,
        "schedule_id": None if shown.schedule_id < 0 else shown.schedule_id,
        "due": None if timeless else shown.due,
    }
    if shown.created is not None:
        answer |= {"created": shown.created, **as_text("key", shown.key)}
        answer |= as_text("value", shown.value)
    return answer
