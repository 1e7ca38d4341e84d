"""Drives a synchronous message log over the fake disk, and keeps book of what it promised.

It stands where the service stands: it stages, writes, syncs in rounds, completes preambles, seals,
retires old segments, is killed and starts again, always on the same disk and with one list of
promises. Time is a counter.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from kumquat.core.errors import KumquatError
from kumquat.core.logs.disk.commit import Round
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.index import IndexDamaged, load_head, write_index
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.logs.messages.recovery.opening import open_log
from kumquat.core.logs.messages.retention import Retention, delete_doomed
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.writer import Appended
from kumquat.core.logs.tests.batches import batch, body
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.logs.tests.promises import Promises, Told

DATA = Path("/data")
OPTIONS = LogOptions(
    directory=DATA, segment_bytes=6000, reserve_bytes=4096, tail_bytes=2000, index_max_entries=20
)


class Driver:
    def __init__(
        self,
        files: FakeFiles | None = None,
        promises: Promises | None = None,
        **options: int,
    ) -> None:
        self.files = files or FakeFiles(DATA)
        self.promises = promises or Promises()
        self.options = replace(OPTIONS, **options)  # type: ignore[arg-type]
        self.now = 1_700_000_000_000
        self.errors: list[str] = []
        self._counter = 0
        self._staged: list[tuple[int, Told, int, bytes]] = []
        self.start()

    def start(self) -> None:
        """Open the log as a new process does; what it says at level ERROR is kept in `errors`."""
        self._staged = []
        with errors_told() as self.errors:
            self.log = open_log(self.files, self.options, self.clock)
        self.log.rolls.clock = lambda: self.now / 1000
        self.reader = Reader(self.log)

    def clock(self) -> int:
        self.now += 1
        return self.now

    def subject(self, name: str) -> Subject:
        return self.log.state.subjects.by_name[name]

    def told(self, name: str) -> Told:
        return self.promises.subjects[self.subject(name).topic_id]

    # --- subjects and ids ----------------------------------------------------------------------

    def create(self, name: str) -> Subject:
        self.write()
        subject = self.log.create_subject_nowait(name)
        told = Told(subject.id, subject.topic_id, name)
        self.promises.subjects[subject.topic_id] = told
        self.when_synced(lambda: setattr(told, "created", True))
        return subject

    def delete(self, name: str) -> None:
        told = self.told(name)
        self.write()
        told.delete_tried = True
        self.log.delete_subject_nowait(self.subject(name))
        self.when_synced(lambda: setattr(told, "deleted", True))

    def raise_earliest(self, name: str, sequence: int) -> None:
        told = self.told(name)
        self.write()
        told.earliest_tried = max(told.earliest_tried, sequence)
        self.log.raise_earliest_nowait(self.subject(name), sequence)
        self.when_synced(lambda: setattr(told, "earliest", max(told.earliest, sequence)))

    def take_producer_ids(self) -> int:
        """A block of ids. They are given out, to be remembered for good, when it is synced."""
        self.write()
        first = self.log.state.producer_ceiling
        self.log.raise_producer_ceiling_nowait(first + 1000)
        self.when_synced(lambda: setattr(self.promises, "producer_ceiling", first + 1000))
        return first

    def when_synced(self, promise: Callable[[], object], position: int | None = None) -> None:
        def synced(error: KumquatError | None) -> None:
            if error is None:
                promise()

        self.log.call_when_synced(self.log.written_end if position is None else position, synced)

    # --- messages ------------------------------------------------------------------------------

    def stage(
        self, name: str, *sizes: int, producer: tuple[int, int, int] = (-1, -1, -1)
    ) -> Appended:
        """A batch of records of these sizes, no two alike."""
        self._counter += 1
        filler = b"%d " % self._counter
        values = [(filler * (size // len(filler) + 1))[:size] for size in sizes]
        producer_id, epoch, first = producer
        made = batch(*values, producer_id=producer_id, epoch=epoch, first=first, timestamp=self.now)
        return self.stage_batch(name, made)

    def stage_batch(self, name: str, data: bytearray) -> Appended:
        told, content = self.told(name), body(data)
        appended = self.log.append_nowait(self.subject(name), memoryview(data))
        told.tried.setdefault(appended.base_sequence, set()).add(content)
        self._staged.append((appended.end, told, appended.base_sequence, content))
        return appended

    def write(self) -> None:
        """Write what is staged; only then may it be promised. StorageError: it is all undone."""
        staged, self._staged = self._staged, []
        self.log.write_nowait()
        for end, told, base, content in staged:
            told.written[base] = content
            self.when_synced(partial(told.acked.__setitem__, base, content), end)

    def append(
        self, name: str, *sizes: int, producer: tuple[int, int, int] = (-1, -1, -1)
    ) -> Appended:
        appended = self.stage(name, *sizes, producer=producer)
        self.write()
        return appended

    # --- rounds --------------------------------------------------------------------------------

    def sync(self) -> None:
        job = self.log.begin_sync()
        if job is not None:
            self.run_job(job)

    def run_job(self, job: Round) -> None:
        try:
            job.run()
        except OSError as error:
            self.log.finish_sync(job, error)
        else:
            self.log.finish_sync(job)
        self.look()

    def look(self) -> None:
        """A reader sees the high watermarks."""
        for subject in self.log.state.subjects:
            if subject.topic_id in self.promises.subjects:
                told = self.promises.subjects[subject.topic_id]
                told.seen = max(told.seen, subject.readable_end)

    def preamble(self, most: int = 1) -> bool:
        self.write()
        return self.log.preamble_step(most)

    def seal(self) -> None:
        """Write the index files that can be written, as the service's chores do."""
        for segment in self.log.unindexed_segments():
            if segment.unindexed is None:
                self.reader.locator.rebuild(segment, IndexDamaged("as the chores found it"))
                segment.newest_store_time = load_head(self.files, segment).newest_store_time
                continue
            write_index(self.files, segment)
            segment.unindexed, segment.rows = None, {}
            if self.files.exists(segment.checkpoint_path):
                self.files.unlink(segment.checkpoint_path)

    def retire(self) -> bool:
        """Delete the oldest segment if the log is over its size, as the service's retention
        does."""
        delete_doomed(self.log)
        retention = Retention(self.log, self.reader)
        due = retention.due_segment(self.now)
        if due is None:
            return False
        segment = due[0]
        for subject, sequence in list(retention.readable_in(segment)):
            self.raise_earliest(subject.name, min(sequence, subject.readable_end))
        while self.log.unsynced_bytes and self.log.fenced is None:
            self.sync()
        if self.log.fenced is not None:
            raise self.log.fenced
        self.log.forget_segment(segment)
        self.reader.locator.indexes.forget(segment)
        delete_doomed(self.log)
        return True

    def settle(self) -> None:
        """Complete the preamble, and sync all."""
        while self.preamble(100):
            pass
        self.write()
        while self.log.unsynced_bytes and self.log.fenced is None:
            self.sync()

    def check(self) -> None:
        self.promises.check(self.log, self.reader)


@contextmanager
def errors_told() -> Iterator[list[str]]:
    """What the log says at level ERROR or above, and nobody else hears."""
    told: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    ear = Ear(logging.ERROR)
    logger = logging.getLogger("kumquat.log")
    logger.addHandler(ear)
    logger.propagate = False
    try:
        yield told
    finally:
        logger.removeHandler(ear)
        logger.propagate = True
