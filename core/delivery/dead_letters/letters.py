"""What makes a record a dead letter: headers behind its own, which say where it comes from and why.

    qmq-dead-subject, -sequence, -group  which message it was, for whom
    qmq-dead-attempts                    how often it was delivered
    qmq-dead-first-ms, -last-ms          when, first and last; left out when not known. If the last is not
                                         known, -last-ms is when it was given up
    qmq-dead-reason                      rejected, attempts, expired, unreadable
    qmq-dead-text                        what the client or the disk said; left out when empty

A message that is redriven keeps them all, as its history, and gets `qmq-redriven-ms` behind them. If it
dies again, more follow: each death is a run of headers that begins with `qmq-dead-subject`. The last run
counts (`origin_of`), unless it names the subject that the letter lies in. Then the letter was itself a
message of that subject, has died there as such, and is back: the run before says where it came from.

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
_NAMES = frozenset((SUBJECT, SEQUENCE, GROUP, ATTEMPTS, FIRST, LAST, REASON, TEXT))
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


def origin_of(record: Record, lies_in: str = "") -> Origin:
    """Where a letter comes from that lies in this subject; without a subject: nowhere."""
    here, last = lies_in.encode(), dict[str, bytes | None]()
    for run in _deaths(record):
        if not here or run.get(SUBJECT) != here:
            last = run

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


def is_without_body(record: Record, origin: Origin) -> bool:
    """Whether the message could not be read when it died (`without_body`). A message that was read may have
    neither key nor value; then it has headers of its own, or has died of something else."""
    return (
        record.key is None
        and record.value is None
        and origin.reason in (EXPIRED, UNREADABLE)
        and len(_deaths(record)) == 1
        and all(name in _NAMES for name, _ in record.headers)
    )


def _deaths(record: Record) -> list[dict[str, bytes | None]]:
    """The headers of each death, in their order."""
    found: list[dict[str, bytes | None]] = []
    for name, value in record.headers:
        if name in _NAMES:
            if name == SUBJECT or not found:
                found.append({})
            found[-1][name] = value
    return found


def _packed(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    if len(data) > MOST_TEXT:
        data = data[:MOST_TEXT].decode("utf-8", "ignore").encode()
    return header(name.encode(), data)
