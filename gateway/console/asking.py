"""Data and actions by way of the admin endpoint's own handlers, so that console and command line agree.

    found = await ask(broker, "GET", "/groups/describe", group="billing")

The route is looked up when it is asked for. A part that this broker does not have (the history of
messages, the search) is then a sentence on a page, and no import that fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.gateway.admin.http import HttpError
from kumquat.gateway.admin.routes import ROUTES, answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.gateway.broker import Broker


class Unanswered(Exception):
    """A handler has refused; `status` as in HTTP, the text is for people."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def has_route(method: str, path: str) -> bool:
    return (method, path) in ROUTES


async def ask(broker: Broker, method: str, path: str, **values: object) -> Mapping[str, Any]:
    """What the handler answers. Values that are None are not given. Raises Unanswered."""
    if not has_route(method, path):
        raise Unanswered(404, f"this broker has no {path}")
    given = {name: value for name, value in values.items() if value is not None}
    try:
        made = await answer(broker, method, path, given)
    except HttpError as error:
        raise Unanswered(error.status, str(error)) from error
    if made.status >= 400:
        raise Unanswered(made.status, _sentence(made.payload))
    return made.payload


def _sentence(payload: Mapping[str, Any]) -> str:
    """Why something was not done, where the answer says what became of it instead."""
    if "message" in payload:
        return str(payload["message"])
    status = payload.get("status")
    if status == "delivered":
        return "too late: the message is delivered already"
    if status == "unknown":
        return "there is no such message; it may be delivered and forgotten"
    return f"refused: {dict(payload)}"
