"""Idempotence: which batch of a producer is new, which is a repetition, which is out of order.

Per subject and producer id: the epoch and the last five batches, as a value that is never changed but
replaced, so that an append that fails is undone by putting the old value back. Kafka's rules:

- the exact range of a remembered batch: a repetition, answered with the original's sequence;
- nothing known of the producer: any sequence number begins it;
- a higher epoch begins at 0 (a client may raise it by itself); a lower one is fenced;
- else the next number, which wraps from 2^31-1 to 0, or it is out of order.
"""

from __future__ import annotations

from kumquat.core.errors import InvalidProducerEpoch, OutOfOrderSequence
from kumquat.core.logs.messages.format import ProducerBatch

REMEMBERED = 5
_SEQUENCE_MASK = 0x7FFFFFFF

ProducerState = tuple[int, tuple[ProducerBatch, ...]]  # epoch, last batches, oldest first


def last_of(first: int, count: int) -> int:
    """The number of a batch's last record."""
    return (first + count - 1) & _SEQUENCE_MASK


def check_sequence(
    state: ProducerState | None, producer_id: int, epoch: int, first: int, count: int
) -> ProducerBatch | None:
    """The original, if this batch repeats one; None if it is the next; else an error."""
    if state is None:
        return None
    current, batches = state
    if epoch != current:
        if epoch < current:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {current}, this batch {epoch}"
            )
        if first != 0:
            raise OutOfOrderSequence(
                f"producer {producer_id} begins epoch {epoch} at {first}, not 0"
            )
        return None
    last = last_of(first, count)
    for batch in reversed(batches):
        if batch.first == first and batch.last == last:
            return batch
    expected = (batches[-1].last + 1) & _SEQUENCE_MASK
    if first != expected:
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {first}, expected {expected}"
        )
    return None


def after(state: ProducerState | None, epoch: int, batch: ProducerBatch) -> ProducerState:
    """The state once this batch is appended."""
    if state is None or state[0] != epoch:
        return (epoch, (batch,))
    return (epoch, (*state[1][1 - REMEMBERED :], batch))
