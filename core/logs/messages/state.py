"""The state that the frames of the message log make: subjects, segments, producer ids. It changes only
here.

The running log and recovery call the same functions: the running log when a frame is staged or written,
recovery when a frame is read back. None of them does I/O.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from pathlib import Path

from kumquat.core.logs.messages.format import ProducerBatch, SubjectState
from kumquat.core.logs.messages.producers import ProducerState, after
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.subject import ENTRY, Subject, SubjectConfig, Subjects

LOST = 0
"""The batch length of an entry that stands for sequences whose batch is gone or unreadable."""


class LogState:
    def __init__(self, directory: Path, defaults: SubjectConfig) -> None:
        self.directory = directory
        self.subjects = Subjects(defaults)
        self.segments: list[Segment] = []
        """By position; the last one is the active one."""
        self.generation = 0
        """Grows with each segment. A subject whose `generation` is this one has its state in the
        segment."""
        self.producer_ceiling = 0
        """Every producer id below it may have been given out."""
        self.cluster_id = ""

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def segment_of(self, position: int) -> Segment:
        """The segment that holds a position; the oldest if all are above it."""
        segments = self.segments
        i = bisect_right(segments, position, key=lambda segment: segment.base)
        return segments[max(0, i - 1)]

    def start_segment(self, segment: Segment, ceiling: int, next_id: int, cluster_id: str) -> None:
        self.segments.append(segment)
        self.generation += 1
        self.producer_ceiling = max(self.producer_ceiling, ceiling)
        self.subjects.next_id = max(self.subjects.next_id, next_id)
        self.cluster_id = cluster_id

    def touch(self, subject: Subject) -> None:
        """The active segment holds this subject's state from here on: what it had in the one before
        is complete, and belongs to that one's index."""
        subject.generation = self.generation
        previous = self.segments[-2] if len(self.segments) > 1 else None
        if previous is not None and previous.unindexed is not None:
            previous.rows[subject.id] = subject.next_sequence
            if subject.entries is not None:
                previous.unindexed[subject.id] = subject.entries
        subject.entries = None

    def untouch(self, subject: Subject) -> None:
        """Undo `touch`: the frame with the state could not be written."""
        subject.generation -= 1
        previous = self.segments[-2]
        assert previous.unindexed is not None
        del previous.rows[subject.id]
        subject.entries = previous.unindexed.pop(subject.id, None)

    def messages(
        self,
        subject: Subject,
        position: int,
        length: int,
        base: int,
        count: int,
        max_timestamp: int,
    ) -> None:
        """A batch was appended. A jump in sequence means that batches before it are lost."""
        entries = subject.entries
        if entries is None:
            entries = subject.entries = array("q")
        if base > subject.next_sequence:
            entries.extend((subject.next_sequence, position, LOST, -1))
        entries.extend((base, position, length, max_timestamp))
        subject.next_sequence = base + count
        self.segments[-1].entries += 1

    def unmessages(self, subject: Subject, base: int) -> None:
        """Undo the newest `messages` of a subject."""
        entries = subject.entries
        assert entries is not None
        assert entries[-ENTRY] == base
        del entries[-ENTRY:]
        if not entries:
            subject.entries = None
        subject.next_sequence = base
        self.segments[-1].entries -= 1

    def produced(self, subject: Subject, producer: int, epoch: int, batch: ProducerBatch) -> None:
        """The batch was of an idempotent producer."""
        if subject.producers is None:
            subject.producers = {}
        producers = subject.producers
        producers[producer] = after(producers.pop(producer, None), epoch, batch)
        if subject.packed is not None:
            subject.packed.changed.add(producer)

    def unproduced(self, subject: Subject, producer: int, before: ProducerState | None) -> None:
        assert subject.producers is not None
        if subject.packed is not None:
            subject.packed.changed.add(producer)
        if before is None:
            del subject.producers[producer]
        else:
            subject.producers[producer] = before

    def created(self, subject_id: int, state: SubjectState) -> Subject:
        subject = self.subjects.add(subject_id, state.topic_id, state.name)
        subject.generation = self.generation
        return subject

    def deleted(self, subject: Subject) -> None:
        self.subjects.remove(subject)

    def raised(self, subject: Subject, earliest: int) -> None:
        """Sequences below are gone for readers. Never goes back."""
        subject.earliest = max(subject.earliest, earliest)

    def lost(self, subject: Subject, next_sequence: int) -> None:
        """What was given up to a sequence is gone."""
        entries = subject.entries = subject.entries or array("q")
        entries.extend((subject.next_sequence, self.active.base, LOST, -1))
        subject.next_sequence = next_sequence

    def restored(self, subject_id: int, next_sequence: int, state: SubjectState) -> Subject:
        """A preamble's word on a subject, read back: the subject is known or becomes so."""
        subject = self.subjects.by_id.get(subject_id)
        if subject is None:
            subject = self.subjects.add(subject_id, state.topic_id, state.name)
            subject.next_sequence = next_sequence
        elif next_sequence > subject.next_sequence:
            self.lost(subject, next_sequence)
        self.touch(subject)
        subject.earliest = max(subject.earliest, state.earliest)
        subject.producers = dict(state.producers) or None
        subject.packed = None
        return subject
