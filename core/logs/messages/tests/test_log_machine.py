"""The log against a model of a few lines: lists of batches, of which a prefix is synced.

Hypothesis drives appends, syncs, chores, kills, power cuts and calls that fail in any order and looks for a
read, by sequence or by time, that the lists would have answered differently.
"""

import errno
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from kumquat.core.errors import StorageError
from kumquat.core.logs.tests.batches import TIME, batch, body
from kumquat.core.logs.tests.driver import Driver, errors_told
from kumquat.core.logs.tests.power import Fault
from kumquat.core.records.batch import read_head


@dataclass
class Model:
    """A subject: its batches as (base, count, timestamp, body), and how many of them are
    synced."""

    batches: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    synced: int = 0
    earliest: int = 0

    @property
    def end(self) -> int:
        return self._end(len(self.batches))

    @property
    def readable_end(self) -> int:
        return self._end(self.synced)

    def _end(self, count: int) -> int:
        return sum(self.batches[count - 1][:2]) if count else 0

    def readable(self) -> list[tuple[int, int, int, bytes]]:
        return [one for one in self.batches[: self.synced] if one[0] + one[1] > self.earliest]


TROUBLE = st.sampled_from(
    [
        (call, error)
        for call in ("open", "pread")
        for error in (errno.EIO, errno.EMFILE, errno.ENOMEM)
    ]
)


class LogMachine(RuleBasedStateMachine):
    names = Bundle("names")

    @initialize(target=names)
    def begin(self) -> str:
        self.driver = Driver(segment_bytes=4000, total_bytes=20_000, tail_bytes=1500)
        self.model: dict[str, Model] = {}
        self.count = 0
        return self.new_subject()

    def sync_model(self) -> None:
        for model in self.model.values():
            model.synced = len(model.batches)

    # --- what clients do -----------------------------------------------------------------------

    @precondition(lambda self: len(self.model) < 5)
    @rule(target=names)
    def create(self) -> str:
        return self.new_subject()

    def new_subject(self) -> str:
        self.count += 1
        name = f"subject-{self.count}"
        self.driver.create(name)
        self.driver.settle()
        self.model[name] = Model()
        self.sync_model()
        return name

    @precondition(lambda self: len(self.model) > 1)
    @rule(name=consumes(names))
    def delete(self, name: str) -> None:
        if name in self.model:
            self.driver.delete(name)
            self.driver.settle()
            del self.model[name]
            self.sync_model()

    @rule(
        name=names,
        sizes=st.lists(st.sampled_from((0, 10, 400, 2500)), min_size=1, max_size=4),
        age=st.integers(0, 5),
    )
    def append(self, name: str, sizes: list[int], age: int) -> None:
        self.count += 1
        values = [(b"%d " % self.count * size)[:size] for size in sizes]
        data = batch(*values, timestamp=TIME + age)
        content = body(data)
        appended = self.driver.stage_batch(name, data)
        self.driver.write()
        model = self.model[name]
        assert appended.base_sequence == model.end
        model.batches.append((model.end, len(sizes), TIME + age, content))

    @rule(name=names, part=st.floats(0, 1))
    def raise_earliest(self, name: str, part: float) -> None:
        model = self.model[name]
        to = model.earliest + round(part * (model.readable_end - model.earliest))
        self.driver.raise_earliest(name, to)
        self.driver.settle()
        model.earliest = to
        self.sync_model()

    # --- what the broker and the world do ------------------------------------------------------

    @rule()
    def sync(self) -> None:
        self.driver.sync()
        self.sync_model()

    @rule(most=st.integers(1, 4))
    def preamble(self, most: int) -> None:
        self.driver.preamble(most)

    @rule()
    def seal(self) -> None:
        self.driver.seal()

    @rule()
    def retire(self) -> None:
        before = {name: self.driver.subject(name).earliest for name in self.model}
        if self.driver.retire():
            self.sync_model()
        for name, model in self.model.items():
            model.earliest = self.driver.subject(name).earliest
            assert before[name] <= model.earliest <= model.readable_end

    @rule(slow=st.booleans())
    def disk(self, slow: bool) -> None:
        """A disk that is slow is written to by rounds: a kill takes what none has written."""
        self.driver.files.call_seconds = 1.0 if slow else 0.0

    @rule()
    def kill(self) -> None:
        late = self.driver.log.late_end
        self.driver.start()
        self._started(lost=bool(late))

    def _started(self, *, lost: bool) -> None:
        """`lost`: what was not synced may be gone."""
        for name, model in self.model.items():
            end = self.driver.subject(name).readable_end
            assert model.readable_end <= end <= model.end
            assert lost or end == model.end
            model.batches = [one for one in model.batches if one[0] < end]
            assert model.end == end, "a batch was cut in two"
        self.sync_model()

    @rule(trouble=TROUBLE, skip=st.integers(0, 6))
    def kill_in_trouble(self, trouble: tuple[str, int], skip: int) -> None:
        """A call of the start fails once: it is refused, or nothing has happened."""
        files, late = self.driver.files, self.driver.log.late_end
        files.fail(Fault(*trouble, skip=skip))
        try:
            self.driver.start()
        except (OSError, StorageError):
            files.heal()
            self.driver.start()
        files.heal()
        assert not [line for line in self.driver.errors if ".index" not in line]
        self._started(lost=bool(late))

    @rule(seed=st.integers(0, 1 << 16))
    def cut(self, seed: int) -> None:
        self.driver.files = self.driver.files.after_power_cut(Random(seed))
        self.driver.start()
        self._started(lost=True)

    # --- what readers see ----------------------------------------------------------------------

    @rule(name=names, part=st.floats(0, 1), most=st.sampled_from((1, 600, 1 << 20)))
    def read(self, name: str, part: float, most: int) -> None:
        model, subject = self.model[name], self.driver.subject(name)
        at = model.earliest + round(part * (model.readable_end - model.earliest))
        found = self.driver.reader.read(subject, at, most, True, nowait=False)
        expected = [one for one in model.readable() if one[0] + one[1] > at]
        got = [(read_head(data).base_offset, body(data)) for data in found]
        assert got == [(base, content) for base, _, _, content in expected[: len(got)]]
        assert bool(got) == bool(expected)
        assert len(got) == 1 or sum(len(data) for data in found) <= most

    @rule(name=names, part=st.floats(0, 1), trouble=TROUBLE, skip=st.integers(0, 3))
    def read_in_trouble(self, name: str, part: float, trouble: tuple[str, int], skip: int) -> None:
        """From some call on all fail: the read does too, and says nothing about the messages."""
        self.driver.files.fail(Fault(*trouble, skip=skip, times=None))
        with errors_told(), suppress(StorageError):
            self.read(name, part, 1)
        self.driver.files.heal()
        assert self.driver.reader.corrupt_reads == 0

    @rule(name=names, age=st.integers(0, 6))
    def find_by_time(self, name: str, age: int) -> None:
        model, subject = self.model[name], self.driver.subject(name)
        first = next((one for one in model.readable() if one[2] >= TIME + age), None)
        expected = None if first is None else (first[2], max(first[0], model.earliest))
        assert self.driver.reader.offset_for_timestamp(subject, TIME + age) == expected
        newest = max(model.readable(), key=lambda one: one[2], default=None)
        expected = None if newest is None else (newest[2], max(newest[0], model.earliest))
        assert self.driver.reader.max_timestamp(subject) == expected

    @invariant()
    def borders_agree(self) -> None:
        for name, model in getattr(self, "model", {}).items():
            subject = self.driver.subject(name)
            assert (subject.earliest, subject.readable_end, subject.next_sequence) == (
                model.earliest,
                model.readable_end,
                model.end,
            )


LogMachine.TestCase.settings = settings(
    max_examples=settings().max_examples * 3 // 5,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
)
TestLogMachine = LogMachine.TestCase
