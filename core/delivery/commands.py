"""What a client says about a message that it could not handle: headers of a record for `__kumquat_retry`.

    qmq-retry-group     the consumer group
    qmq-retry-subject   the topic of the message
    qmq-retry-offset    its offset as the consumer saw it, decimal
    qmq-retry-action    retry (the default): it comes again later; reject: it becomes a dead letter
    qmq-retry-after-ms  when it comes again, decimal milliseconds from now. Else the group's back-off counts
    qmq-retry-reason    what went wrong, in UTF-8: for those who look at the dead letter

Key, value and all other headers do not count. A header that begins with `qmq-retry-`, in any case, and is
none of these is misspelled, and refused: what it says would be ignored. Nothing is clamped. InvalidRecord
says what is wrong and what is allowed.

Why a topic, and no headers on any record: an ordinary Produce pays nothing for it, one ACL can guard it,
and a mirror that copies topics does not do a command again.

Whether the message can be retried is decided elsewhere (give_back.py). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, NamedTuple

from kumquat.core.errors import InvalidRecord

TOPIC: Final = "__kumquat_retry"
PREFIX: Final = "qmq-retry-"
GROUP: Final = "qmq-retry-group"
SUBJECT: Final = "qmq-retry-subject"
OFFSET: Final = "qmq-retry-offset"
ACTION: Final = "qmq-retry-action"
AFTER: Final = "qmq-retry-after-ms"
REASON: Final = "qmq-retry-reason"
NAMES: Final = (GROUP, SUBJECT, OFFSET, ACTION, AFTER, REASON)

MAX_OFFSET: Final = (1 << 63) - 1
MAX_AFTER_MS: Final = 2 * 365 * 86_400_000
"""Two years, as for messages for later."""
LONGEST_NAME: Final = 1024
LONGEST_REASON: Final = 4096
"""Both in bytes."""
_SHOWN: Final = 40
"""How much of a bad value an error shows."""


class Command(NamedTuple):
    group: str
    subject: str
    offset: int
    reject: bool
    after_ms: int | None
    """None: the group's back-off."""
    reason: str


def read_command(headers: Iterable[tuple[str, bytes | None]]) -> Command:
    """The command in the headers of a record. InvalidRecord: it is none."""
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        if name[: len(PREFIX)].lower() != PREFIX:
            continue
        if name not in NAMES:
            raise _unknown(name)
        if name in found:
            raise InvalidRecord(f"header {name} is there twice")
        found[name] = value
    for name in (GROUP, SUBJECT, OFFSET):
        if name not in found:
            raise InvalidRecord(
                f"header {name} is missing: a record for this topic names the group, subject and offset of "
                "a message that could not be handled"
            )
    action = _text(found, ACTION, "retry or reject", len("retry"), len("reject"), "retry")
    if action not in ("retry", "reject"):
        raise _refusal(ACTION, found[ACTION], "retry or reject")
    after = None
    if AFTER in found:
        if action == "reject":
            raise _refusal(AFTER, found[AFTER], "not beside qmq-retry-action: reject")
        after = _number(found, AFTER, MAX_AFTER_MS, "in milliseconds, which is up to two years")
    return Command(
        _text(found, GROUP, "the name of a consumer group", 1, LONGEST_NAME),
        _text(found, SUBJECT, "the name of a topic", 1, LONGEST_NAME),
        _number(found, OFFSET, MAX_OFFSET, "the record's offset as the consumer saw it"),
        action == "reject",
        after,
        _text(found, REASON, f"up to {LONGEST_REASON} bytes of UTF-8", 0, LONGEST_REASON, ""),
    )


def _text(
    found: dict[str, bytes | None],
    name: str,
    allowed: str,
    least: int,
    most: int,
    default: str = "",
) -> str:
    if name not in found:
        return default
    value = found[name]
    try:
        if value is not None and least <= len(value) <= most:
            return value.decode()
    except UnicodeDecodeError:
        pass
    raise _refusal(name, value, allowed)


def _number(found: dict[str, bytes | None], name: str, most: int, what: str) -> int:
    value = found[name]
    if value is not None and value.isdigit() and len(value) <= len(str(MAX_OFFSET)):
        number = int(value)
        if number <= most:
            return number
    raise _refusal(name, value, f"a decimal number from 0 to {most}, {what}")


def _unknown(name: str) -> InvalidRecord:
    close = get_close_matches(name.lower(), NAMES, 1, 0.5)
    meant = f"did you mean {close[0]}? " if close else ""
    return InvalidRecord(
        f"header {name[:_SHOWN]!r} is not known: {meant}There are {', '.join(NAMES)}, in small letters"
    )


def _refusal(name: str, value: bytes | None, allowed: str) -> InvalidRecord:
    if value is None:
        shown = "null"
    else:
        shown = repr(value[:_SHOWN])[1:]
        if len(value) > _SHOWN:
            shown += f"… ({len(value)} bytes)"
    return InvalidRecord(f"header {name} is {shown}; allowed is {allowed}")
