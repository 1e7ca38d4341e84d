"""One look at a batch that a client wants to append: is it sound, and what has to be done with it?

A batch is looked at once, before anything is appended. The look checks the head and the CRC, and says
which of three ways the batch goes. It is a value that carries the checked head along, so nobody behind it
checks again:

    PLAIN  it asks nothing of the broker. It is appended as it is
    ASKS   a record may ask for something (marks.py): the batch has to be split (core/wheel/intake)
    LARGE  it is compressed, and inflating it would keep the event loop too long. It has to be inflated in a
           thread (core/inflation.py), which then says whether it is plain

What it costs:
- An uncompressed batch: one CRC, one search.
- A compressed batch: one CRC, one inflation, one search. It is inflated where the length that it announces
  says (frames.py): up to LIGHT bytes here, more in a thread. So nothing is begun here only to be given up.
  Only a batch that inflates to more than it announces is inflated twice.
- A subject without delay (`opens` is False) takes every batch as it is: one CRC.

The records of a small batch that asks are carried along too, so it is inflated once. Those of others are
not: many such batches may wait for a thread, and no room has been taken for what they inflate to.

Errors are those of `batch.check` and of the codecs, and InvalidRecord for a batch that claims more records
than there can be in it. They come before those of the producer's sequence, as in Kafka. Pure.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, BatchHead, check
from kumquat.core.records.compression import LIGHT, inflate_light
from kumquat.core.records.frames import announced
from kumquat.core.records.marks import asks, check_count, may_ask

CARRIED: Final = 16 << 10
"""Inflated records are carried along up to this size."""


class Verdict(Enum):
    PLAIN = "plain"
    ASKS = "asks"
    LARGE = "large"


PLAIN: Final = Verdict.PLAIN
ASKS: Final = Verdict.ASKS
LARGE: Final = Verdict.LARGE


class Look(NamedTuple):
    head: BatchHead
    verdict: Verdict
    size: int = 0
    """Of the records, unless they are plain; of a large batch what it announces."""
    records: bytes | memoryview | None = None
    """The records of a batch that asks, if they are at hand."""


_new = tuple.__new__
"""Nearly every batch is plain and uncompressed. Look(…) takes three times as long, 0.3 µs."""


def look(batch: memoryview, opens: bool, limit: int) -> Look:
    """Check a batch and say what has to be done with it. `limit`: `max.decompressed.bytes`."""
    head = check(batch)
    if opens:
        codec = head[5] & CODEC_MASK
        if codec:
            return _look_inside(batch, head, codec, limit)
        if may_ask(batch):
            return Look(head, ASKS, len(batch) - HEAD_SIZE, batch[HEAD_SIZE:])
    return _new(Look, (head, PLAIN, 0, None))


def _look_inside(batch: memoryview, head: BatchHead, codec: int, limit: int) -> Look:
    data = batch[HEAD_SIZE:]
    size = announced(codec, data, limit)
    if size > LIGHT:
        return Look(head, LARGE, size)
    records = inflate_light(codec, data, limit, size)
    if records is None:  # it has lied
        return Look(head, LARGE, size)
    size = len(records)
    check_count(head, size)
    if asks(records):
        return Look(head, ASKS, size, records if size <= CARRIED else None)
    return _new(Look, (head, PLAIN, 0, None))
