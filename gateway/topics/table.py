"""All subjects as a Metadata answer lists them, encoded in chunks that are kept.

To encode 100,000 topics takes a good part of a second, and clients often ask for all topics. So the
subjects are divided into chunks by their id. The encoded bytes of each chunk are kept, for each protocol
version, until one of its subjects is added or removed. A full answer consists of all chunks, without a
copy. A chunk that is missing is encoded first, with a pause for other tasks after each.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import trio

from kumquat.core.delivery.commands import TOPIC as RETRY
from kumquat.gateway.wire import Encoded, MetadataResponsePartition, MetadataResponseTopic

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject

OFFSETS = "__consumer_offsets"
ACTIONS = "__kumquat_actions"
"""What happened to messages: see gateway/history."""
INTERNAL = frozenset({ACTIONS, OFFSETS, RETRY})
"""Topics that are Kafka's own, or ours: see subjects.py."""
CHUNK = 256
FORMS_KEPT = 4

Form = tuple[int, int, int]
"""What the bytes depend on: version, node id, authorized operations."""


def topic_metadata(
    subject: Subject, node_id: int, operations: int, *, listed: bool
) -> MetadataResponseTopic:
    """A subject as Metadata shows it: one partition, led by this broker. `listed`: with all others. Our own
    topics are internal in a list alone: kafka-python's producer does not write to what is, and Spark does
    not read it."""
    partition = MetadataResponsePartition(
        leader_id=node_id, leader_epoch=0, replica_nodes=[node_id], isr_nodes=[node_id]
    )
    return MetadataResponseTopic(
        name=subject.name,
        topic_id=subject.topic_id,
        is_internal=subject.name in INTERNAL and (listed or subject.name == OFFSETS),
        partitions=[partition],
        topic_authorized_operations=operations,
    )


class TopicTable:
    def __init__(self) -> None:
        self._chunks: dict[int, dict[int, Subject]] = {}
        self._encoded: dict[Form, dict[int, bytes]] = {}
        """By form, then by chunk."""
        self._in_use: list[dict[int, bytes]] = []
        """Those of which an answer is being made. `_forget` has to reach them, kept or not."""

    def add(self, subject: Subject) -> None:
        self._chunks.setdefault(subject.id // CHUNK, {})[subject.id] = subject
        self._forget(subject.id // CHUNK)

    def remove(self, subject: Subject) -> None:
        chunk = self._chunks[subject.id // CHUNK]
        del chunk[subject.id]
        if not chunk:
            del self._chunks[subject.id // CHUNK]
        self._forget(subject.id // CHUNK)

    async def encoded(self, version: int, node_id: int, operations: int) -> Encoded:
        """All topics, encoded for this version of Metadata."""
        form = (version, node_id, operations)
        kept = self._kept(form)
        self._in_use.append(kept)
        try:
            for number in list(self._chunks):
                if number not in kept and number in self._chunks:
                    kept[number] = self._encode(number, form)
                    await trio.lowlevel.checkpoint()
        finally:
            del self._in_use[next(i for i, used in enumerate(self._in_use) if used is kept)]
        # Chunks that changed during the pauses. They are few, and from here on there is no pause.
        for number in self._chunks:
            if number not in kept:
                kept[number] = self._encode(number, form)
        count = sum(map(len, self._chunks.values()))
        return Encoded(count, *[kept[number] for number in self._chunks])

    def _encode(self, number: int, form: Form) -> bytes:
        version, node_id, operations = form
        encode = MetadataResponseTopic.encode_element
        return b"".join(
            [
                encode(topic_metadata(subject, node_id, operations, listed=True), version)
                for subject in self._chunks[number].values()
            ]
        )

    def _kept(self, form: Form) -> dict[int, bytes]:
        if form not in self._encoded and len(self._encoded) >= FORMS_KEPT:
            del self._encoded[next(iter(self._encoded))]
        return self._encoded.setdefault(form, {})

    def _forget(self, number: int) -> None:
        for kept in itertools.chain(self._encoded.values(), self._in_use):
            kept.pop(number, None)
