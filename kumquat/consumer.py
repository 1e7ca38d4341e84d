"""For consumers: a message that could not be handled comes again later, or becomes a dead letter.

    from kumquat.consumer import reject, retry

    for record in consumer:
        try:
            handle(record)
        except Busy as error:
            retry(producer, "billing", record, after=30, reason=error)
        except ValueError as error:
            reject(producer, "billing", record, reason=error)

"billing" is the consumer's group. The rest of the loop stays as it is: the consumer commits past the
record, and the broker delivers it to the group again, with the header `qmq-attempt`. Without `after`, which
is seconds or a timedelta, it waits as the group's configs say (`retry.backoff.ms` …).

Both work with records and producers of kafka-python, confluent-kafka and aiokafka; with aiokafka they are
awaited: `await retry(…)`. They return when the broker has stored what they say, so commit after them, not
before. `Refused` says why it is not done. What the broker itself refuses is told by kafka-python alone: the
other two hide the text of the answer, but it is in the broker's log too.

Which producers cannot be used: one with acks=0, since it gets no answer. One of kafka-python that is
idempotent, as it is by default: after the first record that a broker refuses it never sends anything again,
and a refusal is nothing special here. Make one with enable_idempotence=False. One whose serializers take
neither bytes nor text.

What they send is a record with a few headers (core/delivery/commands.py): any client in any language can.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Coroutine
from datetime import timedelta
from itertools import product
from typing import Any, Protocol, overload

from kumquat.core.delivery.commands import (
    ACTION,
    AFTER,
    GROUP,
    LONGEST_REASON,
    OFFSET,
    REASON,
    SUBJECT,
    TOPIC,
    read_command,
)
from kumquat.core.errors import InvalidRecord

__all__ = ["Refused", "reject", "retry"]

Headers = list[tuple[str, bytes]]
_REFUSED = 87
"""INVALID_RECORD."""
_AIOKAFKA_REFUSED = (_REFUSED, -1)
"""aiokafka does not know that number."""
_HIDDEN = (
    "the broker refused it; this client hides the reason, the broker's log says it. Was the record "
    "committed before, or is it of another group?"
)
_FORMS: tuple[tuple[Any, Any], ...] = ((None, b""), (None, ""), (b"", b""), ("", ""), ("", b""))
"""Keys and values, which do not count: a producer may have serializers for text or JSON."""
_NOT_TAKEN = (TypeError, AttributeError)
"""What serializers say to what they cannot serialize."""
_CONFLUENT_NOT_TAKEN = ("KeySerializationError", "ValueSerializationError")
_IDEMPOTENT = (
    "an idempotent producer of kafka-python never sends anything again after the broker has refused one "
    "record: make one with enable_idempotence=False for this"
)
_NO_ANSWER = "the producer has acks=0: it would not get the broker's answer"
_POLL_SECONDS = 0.1


class Refused(Exception):
    """The broker has not done it; the text says why."""


class AsyncProducer(Protocol):
    """aiokafka's."""

    async def send_and_wait(self, topic: str, *args: Any, **kwargs: Any) -> Any: ...


@overload
def retry(
    producer: AsyncProducer,
    group: str,
    record: Any,
    after: float | timedelta | None = ...,
    reason: object = ...,
) -> Awaitable[None]: ...
@overload
def retry(
    producer: Any,
    group: str,
    record: Any,
    after: float | timedelta | None = ...,
    reason: object = ...,
) -> None: ...
def retry(
    producer: Any,
    group: str,
    record: Any,
    after: float | timedelta | None = None,
    reason: object = "",
) -> Awaitable[None] | None:
    """Have the group get this record again, that much later; None: as its configs say."""
    headers = _headers(group, record, "retry", reason)
    if after is not None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if not math.isfinite(seconds):
            raise Refused(f"after is {seconds}: it must be a number of seconds")
        headers.append((AFTER, b"%d" % math.ceil(seconds * 1000)))
    return _send(producer, headers)


@overload
def reject(
    producer: AsyncProducer, group: str, record: Any, reason: object = ...
) -> Awaitable[None]: ...
@overload
def reject(producer: Any, group: str, record: Any, reason: object = ...) -> None: ...
def reject(producer: Any, group: str, record: Any, reason: object = "") -> Awaitable[None] | None:
    """Make this record a dead letter of the group."""
    return _send(producer, _headers(group, record, "reject", reason))


def _headers(group: str, record: Any, action: str, reason: object) -> Headers:
    if callable(record.topic):  # confluent-kafka
        topic, offset = record.topic(), record.offset()
    else:
        topic, offset = record.topic, record.offset
    text = (
        f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else str(reason)
    )
    cut = text.encode(errors="replace")[:LONGEST_REASON].decode(errors="ignore")
    return [
        (GROUP, group.encode()),
        (SUBJECT, topic.encode()),
        (OFFSET, b"%d" % offset),
        (ACTION, action.encode()),
        (REASON, cut.encode()),
    ]


def _send(producer: Any, headers: Headers) -> Coroutine[Any, Any, None] | None:
    try:
        read_command(headers)
    except InvalidRecord as error:
        raise Refused(*error.args) from None
    if hasattr(producer, "send_and_wait"):
        return _send_aiokafka(producer, headers)
    if hasattr(producer, "produce"):
        _send_confluent(producer, headers)
    else:
        _send_kafka_python(producer, headers)
    return None


async def _send_aiokafka(producer: Any, headers: Headers) -> None:
    for key, value in _FORMS:
        try:
            await producer.send_and_wait(TOPIC, value, key=key, partition=0, headers=headers)
        except _NOT_TAKEN as error:
            not_taken = error
        except Exception as error:
            if getattr(error, "errno", None) in _AIOKAFKA_REFUSED:
                raise Refused(_HIDDEN) from error
            raise
        else:
            return
    raise _serializers(not_taken)


def _send_kafka_python(producer: Any, headers: Headers) -> None:
    if producer.config.get("enable_idempotence"):
        raise Refused(_IDEMPOTENT)
    if producer.config.get("acks") == 0:
        raise Refused(_NO_ANSWER)
    # It warns when a serializer fails, so what most of them take comes first.
    keys = (None,) if producer.config["key_serializer"] is None else ("", b"")
    values = (b"",) if producer.config["value_serializer"] is None else ("", b"")
    for key, value in product(keys, values):
        try:
            sent = producer.send(TOPIC, value, key=key, partition=0, headers=headers)
        except _NOT_TAKEN as error:
            not_taken = error
            continue
        try:
            sent.get()
        except Exception as error:
            if getattr(error, "errno", None) == _REFUSED:
                raise Refused(*error.args) from error
            raise
        return
    raise _serializers(not_taken)


def _send_confluent(producer: Any, headers: Headers) -> None:
    outcome: list[Any] = []
    for key, value in ((None, None), *_FORMS):
        try:
            producer.produce(
                TOPIC,
                key=key,
                value=value,
                partition=0,
                headers=headers,
                on_delivery=lambda error, _: outcome.append(error),
            )
        except Exception as error:
            if type(error).__name__ not in _CONFLUENT_NOT_TAKEN:
                raise
            not_taken = error
        else:
            break
    else:
        raise _serializers(not_taken)
    while not outcome:
        producer.poll(_POLL_SECONDS)
    (why,) = outcome
    if why is not None:
        if why.code() == _REFUSED:
            raise Refused(_HIDDEN)
        raise RuntimeError(f"the broker was not told: {why}")


def _serializers(error: Exception) -> Refused:
    refused = Refused(
        f"the producer's serializers take neither bytes nor text ({error}): use a producer without them"
    )
    refused.__cause__ = error
    return refused
