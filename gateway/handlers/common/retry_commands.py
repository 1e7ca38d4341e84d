"""Commands about messages that a client could not handle: batches for `__kumquat_retry`, which are obeyed.
Nothing of them is stored.

What a record says is in core/delivery/commands.py, what becomes of the message in groups/failures.py. The
batch may be compressed by any codec, and inflate to QUICK bytes at the most; a large one is opened in a
thread.

Rules:
- A record that cannot be obeyed is refused, with a text for it; the other records of its batch are done.
- The answer waits until what was decided is durable, with acks=1 as with acks=all: the client commits past
  the message next. Where the action log cannot be written, all of the batch is refused, and the client
  sends it again: a command that was done before is no error.
- The sequence numbers of idempotent producers are not looked at, for the same reason.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kumquat.core.delivery.commands import Command, read_command
from kumquat.core.errors import InvalidRecord, MessageTooLarge, StorageError
from kumquat.core.inflation import QUICK
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, check
from kumquat.core.records.compression import held
from kumquat.core.records.records import records_of
from kumquat.gateway.groups.errors import CoordinatorNotAvailable
from kumquat.gateway.groups.failures import Failure
from kumquat.gateway.topics.table import INTERNAL

if TYPE_CHECKING:
    from kumquat.core.records.batch import BatchHead
    from kumquat.gateway.broker import Broker

MOST: Final = 10_000
"""Commands in a batch."""
_LIGHT: Final = 16 << 10
"""A larger batch, or one that is compressed, is opened in a thread."""

Errors = dict[int, str]
"""By the index of a record in its batch: what is wrong with it."""


async def obey(broker: Broker, batch: memoryview) -> Errors:
    """Do what the records of a batch say; durable when it returns. What could not be done, and why."""
    head = check(batch)
    most = broker.log.subjects.defaults.max_message_bytes
    if len(batch) > most:
        raise MessageTooLarge(f"a batch of {len(batch)} bytes: commands may have {most}")
    if head.record_count > MOST:
        raise InvalidRecord(f"{head.record_count} commands in a batch: there may be {MOST}")
    found = list(enumerate(await _open(broker, batch, head)))
    errors: Errors = {index: command for index, command in found if isinstance(command, str)}
    commands = [(index, each) for index, each in found if not isinstance(each, str)]
    try:
        outcomes = await broker.coordinator.fail([_failure(each) for _, each in commands])
    except CoordinatorNotAvailable as error:  # producers send again what a disk refuses
        raise StorageError(str(error)) from error
    for (index, _), refused in zip(commands, outcomes, strict=True):
        if refused is not None:
            errors[index] = refused
    return errors


async def _open(broker: Broker, batch: memoryview, head: BatchHead) -> list[Command | str]:
    """The command in each record, or what is wrong with it."""
    codec, inflation = head.attributes & CODEC_MASK, broker.log.inflation
    limit = min(inflation.limit, QUICK)
    if not codec and len(batch) <= _LIGHT:
        return _read(batch, limit)
    needed = QUICK + (held(codec, batch[HEAD_SIZE:], limit) if codec else 0)
    return await inflation.run_sized(partial(_read, batch, limit), limit, needed)


def _read(batch: memoryview, limit: int) -> list[Command | str]:
    found: list[Command | str] = []
    for record in records_of(batch, limit):
        try:
            command = read_command(record.headers)
        except InvalidRecord as error:
            found.append(str(error))
            continue
        hidden = command.subject in INTERNAL
        found.append(f"there is no topic {command.subject!r}" if hidden else command)
    return found


def _failure(command: Command) -> Failure:
    return Failure(
        command.group,
        command.subject,
        command.offset,
        command.reject,
        command.after_ms,
        command.reason,
    )
