"""Which function answers which request for JSON of the admin endpoint, and how failures become answers.

A route is a function of the broker and of checked arguments. ROUTES names its method, path and arguments,
and is the only source of what is served as JSON and of what errors list; app.py makes routes of Starlette
from it. Errors of the core and of the registry are answered with a status by their Kafka code: STATUS.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from kumquat.gateway.admin import delay
from kumquat.gateway.admin.arguments import Arguments
from kumquat.gateway.admin.dlq import looking, moving
from kumquat.gateway.admin.dlq.wanted import FILTERS
from kumquat.gateway.admin.groups.describe import describe
from kumquat.gateway.admin.groups.listing import list_groups
from kumquat.gateway.admin.groups.reset import reset
from kumquat.gateway.admin.groups.skip import skip
from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.search import (
    BROWSE_ARGUMENTS,
    SEARCH_ARGUMENTS,
    browse,
    search_messages,
)
from kumquat.gateway.admin.trace import ARGUMENTS as _TRACE
from kumquat.gateway.admin.trace import trace_message
from kumquat.gateway.net.dispatch import ANSWERABLE
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.version import version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kumquat.gateway.broker import Broker

    Handler = Callable[[Broker, Arguments], Awaitable[Answer]]

STATUS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.KAFKA_STORAGE_ERROR: 503,
    ErrorCode.DUPLICATE_RESOURCE: 409,
}
OTHERWISE = 400
VERSION = version()


async def _statistics(broker: Broker, arguments: Arguments) -> Answer:
    parts = asdict(broker.statistics())
    parts["delay"]["lateness"] = parts["delay"]["lateness"]._asdict()
    parts["dead_letters"]["failing"] = [
        {"group": group, "subject": subject, "reason": reason}
        for (group, subject), reason in parts["dead_letters"]["failing"].items()
    ]
    return Answer(200, {"version": VERSION, **parts})


_MOVES = (*FILTERS, "after", "limit", "begun", "dry_run")
_RANGE = ("subject", "from", "to")
ROUTES: dict[tuple[str, str], tuple[Handler, tuple[str, ...]]] = {
    ("GET", "/delay/count"): (delay.count, _RANGE),
    ("GET", "/delay/list"): (delay.list_pending, (*_RANGE, "after", "limit")),
    ("GET", "/delay/show"): (delay.show, ("subject", "id", "value")),
    ("POST", "/delay/cancel"): (delay.cancel, ("subject", "id", "schedule_id")),
    ("POST", "/delay/move"): (delay.move, ("subject", "id", "schedule_id", "due")),
    ("GET", "/dlq"): (looking.list_subjects, ("after", "limit")),
    ("GET", "/dlq/letters"): (looking.list_letters, (*FILTERS, "after", "limit")),
    ("GET", "/dlq/show"): (looking.show, ("subject", "sequence")),
    ("POST", "/dlq/redrive"): (moving.redrive, (*_MOVES, "to")),
    ("POST", "/dlq/purge"): (moving.purge, _MOVES),
    ("GET", "/groups"): (list_groups, ("after", "limit")),
    ("GET", "/groups/describe"): (describe, ("group", "after", "limit")),
    ("POST", "/groups/reset"): (reset, ("group", "subject", "to", "time", "dry_run")),
    ("POST", "/groups/skip"): (skip, ("group", "subject", "to")),
    ("GET", "/messages"): (browse, BROWSE_ARGUMENTS),
    ("GET", "/search"): (search_messages, SEARCH_ARGUMENTS),
    ("GET", "/statistics"): (_statistics, ()),
    ("GET", "/trace"): (trace_message, _TRACE),
}


async def answer(broker: Broker, method: str, path: str, values: Mapping[str, object]) -> Answer:
    """What a route of ROUTES answers to these arguments. Raises HttpError."""
    handler, allowed = ROUTES[method, path]
    try:
        return await handler(broker, Arguments(values, allowed))
    except ANSWERABLE as error:
        code = ErrorCode(error.error_code)
        raise HttpError(STATUS.get(code, OTHERWISE), code.name, str(error)) from error
