"""GET /trace: the life of one message. See gateway/history.

/trace?subject=orders&offset=17         the message with that offset
/trace?subject=orders&key=…             the newest with that key
/trace?subject=orders&header=name=value the newest with that header
/trace?subject=orders&id=…  or  &schedule_id=…  a message for later, by its delay id or its schedule id
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.lookup import find_subject
from kumquat.gateway.history.trace import newest, trace, trace_delay

if TYPE_CHECKING:
    from kumquat.core.records.records import Record
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker

ARGUMENTS = ("subject", "offset", "key", "header", "id", "schedule_id")


async def trace_message(broker: Broker, arguments: Arguments) -> Answer:
    subject = find_subject(broker, arguments.required("subject"))
    given = [name for name in ARGUMENTS[1:] if arguments.given(name) is not None]
    if len(given) != 1:
        raise _bad("give one of offset, key, header, id, schedule_id: which message is meant")
    if given[0] in ("id", "schedule_id"):
        delay_id, schedule_id = arguments.text("id"), arguments.number("schedule_id")
        return Answer(
            200, await trace_delay(broker, subject, delay_id=delay_id, schedule_id=schedule_id)
        )
    sequence = arguments.number("offset")
    if sequence is None:
        fits, mark = _wanted(arguments)
        sequence, whole = await newest(broker, subject, fits, mark)
        if sequence is None:
            far = "" if whole else " in the newest part that was searched: give its offset"
            raise HttpError(404, "NOT_FOUND", f"no message of {subject.name} has it{far}")
    return Answer(200, await trace(broker, subject, sequence))


def _wanted(arguments: Arguments) -> tuple[partial[bool], bytes]:
    key, header = arguments.text("key"), arguments.text("header")
    if key is not None:
        return partial(_has_key, key.encode()), key.encode()
    name, equals, value = (header or "").partition("=")
    if not name or not equals:
        raise _bad(f"header must be name=value, not {header!r}")
    return partial(_has_header, name, value.encode()), name.encode()


def _has_key(key: bytes, record: Record) -> bool:
    return record.key == key


def _has_header(name: str, value: bytes, record: Record) -> bool:
    return (name, value) in record.headers


def _bad(message: str) -> HttpError:
    return HttpError(400, "INVALID_ARGUMENT", message)
