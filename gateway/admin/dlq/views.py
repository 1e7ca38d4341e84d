"""Letters in answers. What a letter does not say of itself is null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.gateway.admin.texts import as_text

if TYPE_CHECKING:
    from kumquat.core.delivery.dead_letters.open_letters import Letter

MAX_KEY = 256


def row(subject: str, letter: Letter) -> dict[str, Any]:
    """One of a list; a long key is cut."""
    record, origin = letter.record, letter.origin
    key = None if record.key is None else record.key[:MAX_KEY]
    return {
        "subject": subject,
        "sequence": record.offset,
        "origin": origin.subject or None,
        "origin_sequence": _known(origin.sequence),
        "group": origin.group or None,
        "attempts": _known(origin.attempts),
        "first": _known(origin.first_ms),
        "last": _known(origin.last_ms),
        "reason": origin.reason or None,
        "text": origin.text or None,
        **as_text("key", key),
        "size": _size(letter),
    }


def whole(subject: str, letter: Letter) -> dict[str, Any]:
    record = letter.record
    return {
        **row(subject, letter),
        "timestamp": record.timestamp,
        **as_text("key", record.key),
        **as_text("value", record.value),
        "headers": [{"name": name, **as_text("value", value)} for name, value in record.headers],
    }


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _size(letter: Letter) -> int:
    """In bytes: key, value and headers."""
    _, _, key, value, headers = letter.record
    pairs = sum(len(name.encode()) + len(data or b"") for name, data in headers)
    return len(key or b"") + len(value or b"") + pairs
