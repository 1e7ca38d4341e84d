"""One message, written from a page: as durable as a producer's with acks=all when `produce` returns.

It becomes a batch of one record and goes the way of every Produce: looked at, appended, synced. One with a
delay goes to the delay service and gets no offset until it is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.clock import wall_clock_ms
from kumquat.core.records.look import PLAIN
from kumquat.core.records.records import packed_varint
from kumquat.core.records.rewrite import Body, build, header
from kumquat.core.wheel.intake.headers import DELAY, DELAY_ID
from kumquat.gateway.console.asking import Unanswered
from kumquat.gateway.net.dispatch import ANSWERABLE
from kumquat.gateway.topics.table import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker


NULL = b"\x01"
"""The length of a field that is not there, -1, as a varint."""


class NewMessage(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    delay: str | None = None
    """A duration (15m), or milliseconds."""
    delay_id: str | None = None


async def produce(broker: Broker, subject: Subject, message: NewMessage) -> int:
    """The offset; -1: it is for later. Raises Unanswered."""
    if subject.name in INTERNAL:
        raise Unanswered(400, f"{subject.name} is the broker's own: nobody writes to it from here")
    batch = memoryview(_batch(message))
    try:
        await broker.log.wait_produce_unblocked()
        look = subject.look(batch, broker.log.inflation.limit)
        if look.verdict is PLAIN:
            base, _, end = broker.log.append_nowait(subject, batch, look.head)
            broker.log.write_nowait()
        else:
            base, _, end = await broker.delay.produce(subject, batch, look)
        await broker.log.wait_synced(end)
    except ANSWERABLE as error:
        raise Unanswered(400, f"not stored: {error}") from error
    return base


def _batch(message: NewMessage) -> bytearray:
    asked = []
    if message.delay is not None:
        asked.append((DELAY, message.delay.encode()))
        if message.delay_id is not None:
            asked.append((DELAY_ID, message.delay_id.encode()))
    headers = [(name.encode(), value) for name, value in message.headers] + asked
    fields = _field(message.key) + _field(message.value)
    body = Body(wall_clock_ms(), fields, 0, b"")
    return build([(body, [header(name, value) for name, value in headers])])


def _field(data: bytes | None) -> bytes:
    return NULL if data is None else packed_varint(len(data)) + data
