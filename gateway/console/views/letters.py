"""Dead letters: by subject and reason, a list, one of them; and what a redrive or purge would do.

All of it is the admin endpoint's /dlq…; here it is put into the words of a page. The sums by group are of
the letters that are shown.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from kumquat.core.delivery.actions import REASONS
from kumquat.gateway.admin.dlq.wanted import FILTERS
from kumquat.gateway.console.asking import Unanswered, ask
from kumquat.gateway.console.forms import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.gateway.broker import Broker

PAGE = 50
SUBJECTS = 50
PARTS = 200
"""Parts of a redrive or purge that one form does: each is up to a thousand letters."""
MOVE_SECONDS = 15.0
"""Then it ends too, so that the page can say what was done."""


class Letters(NamedTuple):
    subjects: list[dict[str, Any]]
    following_subjects: str | None
    letters: list[dict[str, Any]]
    following: str | None
    unreadable: int
    groups: dict[str, int]
    """Of the letters that are shown."""
    reasons: tuple[str, ...]


class Move(NamedTuple):
    """What a redrive or purge did, or would do."""

    done: int
    bytes: int
    to: dict[str, int]
    refused: dict[str, int]
    complete: bool
    begun: int
    """Letters that died later are not meant."""
    failed: str = ""
    """Why it broke off after some of it was done."""


async def letters(broker: Broker, asked: Mapping[str, str]) -> Letters:
    """Raises Unanswered."""
    subjects = await ask(broker, "GET", "/dlq", after=asked.get("subjects_after"), limit=SUBJECTS)
    wanted = chosen(asked)
    found = await ask(broker, "GET", "/dlq/letters", **wanted, after=asked.get("after"), limit=PAGE)
    groups: dict[str, int] = {}
    for letter in found["letters"]:
        name = letter["group"] or "?"
        groups[name] = groups.get(name, 0) + 1
    return Letters(
        list(subjects["subjects"]),
        subjects["next"],
        list(found["letters"]),
        found["next"],
        found["unreadable"],
        groups,
        tuple(REASONS),
    )


def chosen(asked: Mapping[str, str]) -> dict[str, str]:
    """The fields that say which letters are meant."""
    return {name: asked[name] for name in FILTERS if name in asked}


async def letter(broker: Broker, subject: str, sequence: int) -> Mapping[str, Any]:
    """Raises Unanswered."""
    return await ask(broker, "GET", "/dlq/show", subject=subject, sequence=sequence)


def raw(found: Mapping[str, Any], name: str) -> bytes | None:
    """The bytes of a field of an answer."""
    value = found.get(name)
    if value is None:
        return None
    if found.get(f"{name}_encoding") == "base64":
        return b64decode(value)
    return str(value).encode()


async def move(broker: Broker, what: str, asked: Mapping[str, str], *, dry_run: bool) -> Move:
    """`what`: redrive or purge; of all letters that are meant, part by part. Raises Unanswered."""
    wanted: dict[str, object] = {**chosen(asked)}
    if what == "redrive" and "to" in asked:
        wanted["to"] = asked["to"]
    done = size = 0
    to: dict[str, int] = {}
    refused: dict[str, int] = {}
    after, begun, failed = None, number(asked, "begun"), ""
    ends = trio.current_time() + MOVE_SECONDS
    for _ in range(PARTS):
        given = {**wanted, "after": after, "begun": begun or None, "dry_run": dry_run}
        try:
            part = await ask(broker, "POST", f"/dlq/{what}", **given)
        except Unanswered as error:
            if dry_run or not done:
                raise
            failed = str(error)
            break
        begun = begun or part["now"]
        done, size = done + part["done"], size + part["bytes"]
        for sums, more in ((to, part["to"]), (refused, part["refused"])):
            for name, count in more.items():
                sums[name] = sums.get(name, 0) + count
        after = part["next"]
        if after is None or trio.current_time() > ends:
            break
    return Move(done, size, to, refused, after is None, begun, failed)
