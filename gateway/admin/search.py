"""GET /search and GET /messages: find messages of a subject, or look through it.

    GET /search?subject=S&key=K | key_base64=… & header=NAME=VALUE & text=T     all that is given must hold
               &since=T&until=T        timestamps: a time, or how long ago (15m)
               &from=N&to=N            offsets: from N on, below N
               &order=newest|oldest&limit=N&after=N&value_bytes=N
    GET /messages?subject=S&offset=N | time=T | last=true    from there on; `last`: newest first
               &limit=N&after=N&value_bytes=N

    {"messages": [{"offset", "timestamp", "key", "headers": [{"name", "value"}], "value", "size"}],
     "scanned": {"batches", "bytes", "from", "to"}, "by": "index" or "scan",
     "unreadable": [{"from", "to", "why"}], "next": N or null}

Keys and values are {"text": …}, or {"base64": …} where they are not UTF-8, or null. A long one is cut,
with "cut": true and its whole "size"; `value_bytes` says how much of a value is given. A message's own
"size" is that of key, value and headers. Of very many headers the first ones are given, and
"headers_left_out" says how many are not.

`next` is not null when there may be more: because there are enough messages, or because a request reads
no more than MOST_BYTES and takes no longer than SEARCH_SECONDS (gateway/search/scan.py). Ask again with
after=next. So an answer without messages and with a `next` says only that there is nothing in the
offsets that were scanned.

Delayed messages have no offset until they are due: they are not found here. /delay/list has them.
Batches that are damaged or cannot be read for now are listed as unreadable; what they hold is not
known.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any

from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.lookup import find_subject
from kumquat.gateway.admin.texts import shown
from kumquat.gateway.search.query import MAX_LIMIT, MAX_VALUE, Query
from kumquat.gateway.search.scan import search

if TYPE_CHECKING:
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.search.query import Bytes, Found, Message

DEFAULT_LIMIT = 20
MOST_VALUE = 1 << 20
SEARCH_ARGUMENTS = (
    *("subject", "key", "key_base64", "header", "text", "since", "until", "from", "to"),
    *("order", "limit", "after", "value_bytes"),
)
BROWSE_ARGUMENTS = ("subject", "offset", "time", "last", "limit", "after", "value_bytes")


async def search_messages(broker: Broker, arguments: Arguments) -> Answer:
    query = Query(
        find_subject(broker, arguments.required("subject")),
        key=_key(arguments),
        header=_header(arguments.text("header")),
        text=_encoded(arguments.text("text")),
        since=arguments.past("since"),
        until=arguments.past("until"),
        first=arguments.number("from"),
        end=arguments.number("to"),
        newest=_is_newest(arguments.text("order")),
        **_page(arguments),
    )
    return Answer(200, _found(await search(broker, query)))


async def browse(broker: Broker, arguments: Arguments) -> Answer:
    subject = find_subject(broker, arguments.required("subject"))
    last, offset, time = (
        arguments.flag("last"),
        arguments.number("offset"),
        arguments.past("time"),
    )
    if last + (offset is not None) + (time is not None) > 1:
        raise _bad("give one of offset, time and last")
    if time is not None:
        place = await broker.log.offset_for_timestamp(subject, time)
        offset = subject.readable_end if place is None else place[1]
    query = Query(subject, first=offset, newest=last, **_page(arguments))
    found = await search(broker, query)
    bounds = {"earliest": subject.earliest, "end": subject.readable_end}
    return Answer(200, {"subject": subject.name, **bounds, **_found(found)})


def _page(arguments: Arguments) -> dict[str, Any]:
    return {
        "limit": arguments.number("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT,
        "after": arguments.number("after"),
        "max_value": arguments.number("value_bytes", 1, MOST_VALUE) or MAX_VALUE,
    }


def _key(arguments: Arguments) -> bytes | None:
    """An empty key is a key; what has none (null) cannot be searched for."""
    key, coded = arguments.given("key"), arguments.text("key_base64")
    if key is not None and coded is not None:
        raise _bad("give key or key_base64, not both")
    if coded is not None:
        try:
            return b64decode(coded, validate=True)
        except ValueError as error:
            raise _bad(f"key_base64 is not base64: {error}") from None
    return None if key is None else str(key).encode()


def _header(text: str | None) -> tuple[str, bytes] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise _bad(f"header must be name=value, not {text!r}")
    return name, value.encode()


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _is_newest(order: str | None) -> bool:
    if order not in (None, "newest", "oldest"):
        raise _bad(f"order must be newest or oldest, not {order!r}")
    return order != "oldest"


def _found(found: Found) -> dict[str, Any]:
    return {
        "messages": [message_view(message) for message in found.messages],
        "scanned": {
            "batches": found.batches,
            "bytes": found.bytes,
            "from": found.first,
            "to": found.end,
        },
        "by": "index" if found.by_index else "scan",
        "unreadable": [
            {"from": each.first, "to": each.end, "why": each.why} for each in found.unreadable
        ],
        "next": found.next,
    }


def message_view(message: Message) -> dict[str, Any]:
    """A message as answers show it."""
    view: dict[str, Any] = {
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _view(message.key),
        "headers": [{"name": name, "value": _view(value)} for name, value in message.headers],
        "value": _view(message.value),
        "size": message.size,
    }
    if message.headers_left_out:
        view["headers_left_out"] = message.headers_left_out
    return view


def _view(content: Bytes | None) -> dict[str, str | int | bool] | None:
    return None if content is None else shown(content.data, content.size)


def _bad(message: str) -> HttpError:
    return HttpError(400, "INVALID_ARGUMENT", message)
