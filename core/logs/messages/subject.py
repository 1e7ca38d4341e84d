"""A subject as the log knows it, and the table of all subjects.

earliest ≤ readable end ≤ next sequence, always: readers see [earliest, readable end), which is
synced; [readable end, next sequence) is written or staged but not synced yet.

`entries` is the consume log of the active segment: four numbers a batch, in one flat array (base
sequence, position of the frame, length of the batch, highest timestamp). Sealed segments keep theirs
in index files. With 100,000 subjects every object here counts, hence slots and None for "nothing yet".
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kumquat.core.errors import MessageTooLarge
from kumquat.core.logs.messages.format import PackedProducers, SubjectState, pack_producer
from kumquat.core.logs.messages.producers import ProducerState
from kumquat.core.records.look import Look, look

ENTRY = 4  # numbers per entry


@dataclass(slots=True)
class SubjectConfig:
    """The settings of a subject that the log acts on. One object serves all that have defaults."""

    max_message_bytes: int
    retention_ms: int
    retention_bytes: int
    log_append_time: bool = False
    delay_enabled: bool = True
    """Whether batches are looked through for delay headers."""
    index_keys: bool = False
    """Whether its keys are indexed: see keys/."""
    history: int = 0
    """Of how many messages one has its life recorded; 1: of all, 0: of none. The log does not act on it:
    who observes it does (observer.py)."""


class Subject:
    __slots__ = (
        "config",
        "deleted",
        "earliest",
        "entries",
        "generation",
        "id",
        "name",
        "next_sequence",
        "packed",
        "producers",
        "readable_end",
        "topic_id",
        "waiters",
    )

    def __init__(self, subject_id: int, topic_id: bytes, name: str, config: SubjectConfig) -> None:
        self.id = subject_id
        self.topic_id = topic_id
        self.name = name
        self.config = config
        self.earliest = 0
        self.readable_end = 0
        self.next_sequence = 0
        self.producers: dict[int, ProducerState] | None = None
        """The one that was heard of last stands last."""
        self.packed: PackedProducers | None = None
        """Producers as the next preamble will hold them, if they are packed ahead of it."""
        self.entries: array[int] | None = None
        self.generation = 0
        """The last preamble that holds this subject's state."""
        self.waiters: set[Callable[[], None]] | None = None
        self.deleted = False

    def __repr__(self) -> str:
        return (
            f"<subject {self.id} {self.name!r} {self.earliest}..{self.readable_end}"
            f"..{self.next_sequence}>"
        )

    def look(self, batch: memoryview, limit: int) -> Look:
        """Check a batch that a client sends here, and say what has to be done with it: see look.py.
        `limit`: `max.decompressed.bytes`."""
        config = self.config
        if len(batch) > config.max_message_bytes:
            raise MessageTooLarge(
                f"a batch of {len(batch)} bytes is larger than max.message.bytes "
                f"({config.max_message_bytes}) of {self.name!r}"
            )
        return look(batch, config.delay_enabled, limit)

    def forget_producers(self, before: int, most: int) -> bool:
        """Drop producers that have been silent since then, `most` of them at once; gives whether there may
        be more."""
        producers = self.producers
        if not producers:
            return False
        silent: list[int] = []
        for producer, state in islice(producers.items(), most):
            if state[1][-1].store_time >= before:
                break
            silent.append(producer)
        for producer in silent:
            del producers[producer]
        if not producers:
            self.producers = None
        return len(silent) == most

    def pack(self, producers: Sequence[int]) -> None:
        """Pack some of its producers ahead of the next preamble. Nothing that they sent may be undone."""
        if self.packed is None:
            self.packed = PackedProducers([], 0, set())
        known = self.producers or {}
        found = [pack_producer(p, known[p]) for p in producers if p in known]
        self.packed.chunks.append(b"".join(found))
        self.packed.count += len(found)

    def state(self) -> SubjectState:
        """What a preamble keeps of it."""
        return SubjectState(self.topic_id, self.earliest, self.name, self.producers or {})

    def wake(self) -> None:
        """Wake the reads that wait for the high watermark to move, or for the end of the subject.

        Who is woken may come to wait again at once."""
        waiters, self.waiters = self.waiters, None
        for wake in waiters or ():
            wake()


class Subjects:
    """All live subjects, by each of their three names."""

    def __init__(self, defaults: SubjectConfig) -> None:
        self.defaults = defaults
        self.by_id: dict[int, Subject] = {}
        self.by_name: dict[str, Subject] = {}
        self.by_topic_id: dict[bytes, Subject] = {}
        self.next_id = 1

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Subject]:
        return iter(self.by_id.values())

    def add(self, subject_id: int, topic_id: bytes, name: str) -> Subject:
        subject = Subject(subject_id, topic_id, name, self.defaults)
        self.by_id[subject_id] = subject
        self.by_name[name] = subject
        self.by_topic_id[topic_id] = subject
        self.next_id = max(self.next_id, subject_id + 1)
        return subject

    def remove(self, subject: Subject) -> None:
        del self.by_id[subject.id]
        del self.by_topic_id[subject.topic_id]
        if self.by_name.get(subject.name) is subject:
            del self.by_name[subject.name]
        subject.deleted = True
        subject.wake()
