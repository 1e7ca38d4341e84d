"""What makes a record a dead letter: headers behind its own, which say where it comes from and why.

    qmq-dead-subject, -sequence, -group  which message it was, for whom
    qmq-dead-attempts                    how often it was delivered
    qmq-dead-first-ms, -last-ms          when, first and last; left out when not known
    qmq-dead-reason                      rejected, attempts, expired, unreadable
    qmq-dead-text                        what the client or the disk said; left out when empty

A message that is redriven keeps them all, as its history, and gets `qmq-redriven-ms` behind them. If it
dies again, more follow. So whoever reads takes the last of each name (`origin_of`).

A message whose bytes are gone becomes a letter without key and value: what was known of it is in the
headers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kumquat.core.delivery.actions import EXPIRED, UNREADABLE
from kumquat.core.delivery.progress import Doomed
from kumquat.core.records.records import Record
from kumquat.core.records.rewrite import NOTHING, Body, header

SUBJECT = "qmq-dead-subject"
SEQUENCE = "qmq-dead-sequence"
GROUP = "qmq-dead-group"
ATTEMPTS = "qmq-dead-attempts"
FIRST = "qmq-dead-first-ms"
LAST = "qmq-dead-last-ms"
REASON = "qmq-dead-reason"
TEXT = "qmq-dead-text"
REDRIVEN = "qmq-redriven-ms"
_SEQUENCE = SEQUENCE.encode()
MOST_TEXT = 4_096
"""Bytes of a text that are kept."""


class Origin(NamedTuple):
    """What a dead letter says about itself. Where a header is missing or garbled: empty, or -1."""

    subject: str
    sequence: int
    group: str
    attempts: int
    first_ms: int
    last_ms: int
    reason: str
    text: str


class Address(NamedTuple):
    """The headers that all letters of a group and subject have in common, packed."""

    before: bytes
    after: bytes


def address(subject: str, group: str) -> Address:
    return Address(_packed(SUBJECT, subject), _packed(GROUP, group))


def headers_of(where: Address, sequence: int, doomed: Doomed) -> list[bytes]:
    """The headers that make a dead letter of a record."""
    which = header(_SEQUENCE, b"%d" % sequence)
    return [where.before, which, where.after, *_fate(*doomed[2:])]


@lru_cache(64)
def _fate(attempts: int, reason: str, text: str, since: int, at: int) -> list[bytes]:
    """What many messages have in common that died together."""
    made = [_packed(ATTEMPTS, str(attempts))]
    if since:
        made.append(_packed(FIRST, str(since)))
    if at:
        made.append(_packed(LAST, str(at)))
    made.append(_packed(REASON, reason))
    if text:
        made.append(_packed(TEXT, text))
    return made


def redriven(now: int) -> list[bytes]:
    return [_packed(REDRIVEN, str(now))]


def without_body(doomed: Doomed, why: str, gone: bool, now: int) -> tuple[Body, Doomed]:
    """The letter of a message that cannot be read (`gone`: retention took it), and what its headers say."""
    reason = EXPIRED if gone else UNREADABLE
    before = "" if doomed.reason == reason else doomed.reason
    text = "; ".join(part for part in (why, before, doomed.text) if part and part != reason)
    return Body(doomed.at or now, NOTHING, 0, b""), doomed._replace(reason=reason, text=text)


def origin_of(record: Record) -> Origin:
    last = dict(record.headers)

    def text(name: str) -> str:
        return (last.get(name) or b"").decode(errors="replace")

    def number(name: str) -> int:
        found = text(name)
        return int(found) if found.isascii() and found.isdecimal() and len(found) < 20 else -1

    return Origin(
        text(SUBJECT),
        number(SEQUENCE),
        text(GROUP),
        number(ATTEMPTS),
        number(FIRST),
        number(LAST),
        text(REASON),
        text(TEXT),
    )


def _packed(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    if len(data) > MOST_TEXT:
        data = data[:MOST_TEXT].decode("utf-8", "ignore").encode()
    return header(name.encode(), data)
