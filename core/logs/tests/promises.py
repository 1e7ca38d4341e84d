"""What the world outside was promised by the log, and whether a log that was opened again keeps
it.

The model in the fault tests: it knows nothing of files, segments or indexes. A promise begins when
the log says that something is synced: then it must be there for good, at its place, with its
bytes. What was only tried may be there after a fault or not; what nobody tried must not be there.
"""

from dataclasses import dataclass, field

from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.tests.batches import body
from kumquat.core.records.batch import read_head


@dataclass
class Told:
    """One subject's promises."""

    subject_id: int
    topic_id: bytes
    name: str
    tried: dict[int, set[bytes]] = field(default_factory=dict)
    written: dict[int, bytes] = field(default_factory=dict)
    """Answered with acks=1: it outlives the process, though not a power cut."""
    acked: dict[int, bytes] = field(default_factory=dict)
    created: bool = False
    delete_tried: bool = False
    deleted: bool = False
    earliest_tried: int = 0
    earliest: int = 0
    seen: int = 0
    """The highest high watermark that a reader was shown."""

    def end_of_acked(self) -> int:
        if not self.acked:
            return 0
        base = max(self.acked)
        return base + _count(self.acked[base])


@dataclass
class Promises:
    subjects: dict[bytes, Told] = field(default_factory=dict)
    producer_ceiling: int = 0
    """Ids below it may have been given out."""

    def check(self, log: MessageLog, reader: Reader) -> None:
        """Asserts that the log, just opened, keeps every promise."""
        assert log.state.producer_ceiling >= self.producer_ceiling, "a producer id comes twice"
        known = [told.subject_id for told in self.subjects.values() if told.created]
        assert log.state.subjects.next_id > max(known, default=0), "a subject id comes twice"
        for told in self.subjects.values():
            subject = log.state.subjects.by_topic_id.get(told.topic_id)
            if subject is None:
                assert told.delete_tried or not told.created, f"{told.name} is gone"
                continue
            assert not told.deleted, f"{told.name} is back from the dead"
            assert (subject.id, subject.name) == (told.subject_id, told.name)
            self._check_subject(subject, told, reader)

    def check_written(self, log: MessageLog, reader: Reader) -> None:
        """Asserts that all that was written is there, after a process was killed."""
        for told in self.subjects.values():
            subject = log.state.subjects.by_topic_id.get(told.topic_id)
            assert subject is not None or told.delete_tried, f"{told.name} is gone"
            if subject is not None:
                found = read_all(reader, subject)
                for base, content in told.written.items():
                    if base + _count(content) > subject.earliest:
                        assert found.get(base) == content, f"{told.name}: {base} is gone"

    def _check_subject(self, subject: Subject, told: Told, reader: Reader) -> None:
        who = f"{told.name}: "
        assert told.earliest <= subject.earliest <= told.earliest_tried, f"{who}earliest sequence"
        assert subject.readable_end == subject.next_sequence, f"{who}unsynced after recovery"
        assert subject.readable_end >= max(told.seen, told.end_of_acked()), f"{who}shown, gone"
        found = read_all(reader, subject)
        for base, content in found.items():
            assert content in told.tried.get(base, ()), f"{who}nobody wrote what is at {base}"
        for base, content in told.acked.items():
            if base + _count(content) > subject.earliest:
                assert found.get(base) == content, f"{who}the acked batch at {base} is gone"


def read_all(reader: Reader, subject: Subject) -> dict[int, bytes]:
    """Every batch that a reader gets, by base sequence; asserts that the sequences are dense."""
    found: dict[int, bytes] = {}
    at = subject.earliest
    while at < subject.readable_end:
        batches = reader.read(subject, at, 5000, True, nowait=False)
        assert batches, f"{subject.name}: nothing to read at {at}"
        for data in batches:
            head = read_head(data)
            assert head.base_offset <= at, f"{subject.name}: nothing holds {at}"
            assert head.base_offset == at or not found, f"{subject.name}: {at} comes twice"
            assert head.base_offset + head.record_count > at, f"{subject.name}: {at} comes twice"
            found[head.base_offset] = body(data)
            at = head.base_offset + head.record_count
    assert at == subject.readable_end or not found
    return found


def _count(content: bytes) -> int:
    """The number of records in a batch without its first 16 bytes."""
    return read_head(bytes(16) + content).record_count
