"""Search against a list of all messages: whatever happened to the log and its files of keys, they agree.

Hypothesis drives produces in every codec, holes, DeleteRecords, retention, seals, kills, power cuts,
configs that are switched, files of keys that are made, lost, flipped, cut, or whose making fails at any
call. Then it searches by key, header, text, time and offsets, in both directions and in pages, and
compares with the list. Keys are hashed so badly that many collide.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kumquat.core.errors import StorageError
from kumquat.core.logs.disk import unreadable
from kumquat.core.logs.messages.keys import build
from kumquat.core.logs.messages.keys.build import Build, wanted_in
from kumquat.core.logs.messages.keys.files import KeyFiles, log
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.subject import SubjectConfig
from kumquat.core.logs.tests.batches import TIME
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.logs.tests.keyed import Sent, Stored, packed, stored
from kumquat.core.logs.tests.power import Fault
from kumquat.core.records import read_head
from kumquat.core.records.tests.codecs import WRITERS
from kumquat.gateway.search import slices
from kumquat.gateway.search.query import Query
from kumquat.gateway.search.slices import Slicer
from kumquat.gateway.search.tests.naive import naive

LIMIT = 64 << 20
SUBJECTS = ("orders", "other")
KEYS = (None, b"", b"a", b"b", b"ab", b"key-1", b"\xff\x00", b"a longer key, to be sure" * 3)
HEADERS = (("id", b"1"), ("id", b"2"), ("id", None), ("trace", b""), ("", b"nameless"))
VALUES = (None, b"", b"apple", b"an apple pie", b"\x00\x02a", b"needle" * 40)
SENT = st.builds(
    Sent,
    key=st.sampled_from(KEYS),
    value=st.sampled_from(VALUES),
    headers=st.lists(st.sampled_from(HEADERS), max_size=3).map(tuple),
    timestamp=st.integers(TIME - 3, TIME + 3),
    holes=st.sampled_from((0, 0, 0, 2)),
)
TIMES = st.none() | st.integers(TIME - 4, TIME + 4)
FAULTS = st.sampled_from(
    [
        (call, error)
        for call in ("open", "pwritev", "fdatasync", "rename", "fsync_dir", "pread", "truncate")
        for error in (errno.EIO, errno.ENOSPC, errno.EMFILE)
    ]
)


def bad_hash(key: bytes) -> int:
    """Three values for all keys, at both ends and in the middle."""
    return (0, 1 << 63, (1 << 64) - 1)[sum(key) % 3]


def no_check() -> None:
    """Somebody waits for the answer."""


class SearchMachine(RuleBasedStateMachine):
    @initialize(
        parts=st.sampled_from((3, 1000)),
        few=st.sampled_from((1, 2, 256)),
        first=st.lists(st.lists(SENT, min_size=1, max_size=6), min_size=4, max_size=8),
    )
    def begin(self, parts: int, few: int, first: list[list[Sent]]) -> None:
        """A log of several segments, one subject of two indexed."""
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(unreadable, "_PAUSES_SECONDS", (0.0, 0.0))
        self.patch.setattr(build, "MOST_ENTRIES", parts)
        self.patch.setattr(build, "_PER_BUCKET", 2)
        self.patch.setattr(slices, "_MOST_BATCHES", few)
        self.patch.setattr(log, "disabled", True)
        self.driver = Driver(segment_bytes=3000, total_bytes=20_000, tail_bytes=1000)
        self.sent: dict[str, list[Stored]] = {name: [] for name in SUBJECTS}
        self.indexed: set[str] = set()
        for name in SUBJECTS:
            self.driver.create(name)
        self.driver.settle()
        self.switch("orders")
        self.opened()
        for sent in first:
            for name in SUBJECTS:
                self.produce(name, sent, "", 4)
            self.settle()
        self.make_keys()

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    def opened(self) -> None:
        """The log is another one: a start has lost what a power cut took."""
        self.keys = KeyFiles(self.driver.log.open_files, bad_hash)
        for name in SUBJECTS:
            subject = self.driver.subject(name)
            self.sent[name] = [one for one in self.sent[name] if one.offset < subject.next_sequence]
            self.apply_config(name)

    def apply_config(self, name: str) -> None:
        config = SubjectConfig(1 << 20, -1, -1, index_keys=name in self.indexed)
        self.driver.subject(name).config = config

    # --- what clients do -----------------------------------------------------------------------

    @rule(
        name=st.sampled_from(SUBJECTS),
        sent=st.lists(SENT, min_size=1, max_size=6),
        codec=st.sampled_from(["", "", "", *WRITERS]),
        times=st.integers(1, 6),
    )
    def produce(self, name: str, sent: list[Sent], codec: str, times: int) -> None:
        subject = self.driver.subject(name)
        for _ in range(times):
            data = memoryview(packed(sent, codec))
            appended = self.driver.log.append_nowait(subject, data, read_head(data))
            self.driver.write()
            self.sent[name] += stored(sent, appended.base_sequence)

    @rule(name=st.sampled_from(SUBJECTS), part=st.floats(0, 1))
    def delete_records(self, name: str, part: float) -> None:
        subject = self.driver.subject(name)
        to = subject.earliest + round(part * (subject.readable_end - subject.earliest))
        self.driver.raise_earliest(name, to)
        self.driver.settle()

    @rule(name=st.sampled_from(SUBJECTS))
    def switch(self, name: str) -> None:
        self.indexed ^= {name}
        self.apply_config(name)

    # --- what the broker and the world do ------------------------------------------------------

    @rule()
    def settle(self) -> None:
        self.driver.settle()
        self.driver.seal()

    @rule()
    def settle_and_make_keys(self) -> None:
        self.settle()
        self.make_keys()

    @rule()
    def retire(self) -> None:
        self.driver.retire()

    def sealed(self) -> list[Segment]:
        segments = self.driver.log.state.segments[:-1]
        return [s for s in segments if s.unindexed is None and s.newest_store_time >= 0]

    @rule()
    def make_keys(self) -> None:
        subjects = [self.driver.subject(name) for name in self.indexed]
        for segment in self.sealed():
            wanted = wanted_in(self.driver.reader, self.keys, segment, subjects)
            if wanted:
                made = Build(self.driver.reader, self.keys, segment, wanted, LIMIT)
                try:
                    while not made.step(0.0):
                        pass
                finally:
                    made.abandon()

    @rule(fault=FAULTS, skip=st.integers(0, 5))
    def make_keys_in_trouble(self, fault: tuple[str, int], skip: int) -> None:
        """A call fails, and all behind it."""
        self.driver.files.fail(Fault(*fault, skip=skip, times=None))
        with suppress(StorageError, OSError):
            self.make_keys()
        self.driver.files.heal()

    @precondition(lambda self: self.sealed())
    @rule(
        which=st.integers(0, 5),
        how=st.sampled_from(("flip", "cut", "lose")),
        at=st.floats(0, 0.999),
        far=st.booleans(),
    )
    def damage_keys(self, which: int, how: str, at: float, far: bool) -> None:
        segment = self.sealed()[which % len(self.sealed())]
        files = self.driver.files
        if not files.exists(segment.keys_path) or not files.content(segment.keys_path):
            return
        content = bytearray(files.content(segment.keys_path))
        place = int(at * (len(content) if far else min(len(content), 300)))
        if how == "flip":
            content[place] ^= 1 << place % 8
            files.damage(segment.keys_path, bytes(content))
        elif how == "cut":
            files.damage(segment.keys_path, bytes(content[:place]))
        else:
            files.unlink(segment.keys_path)
        self.keys.forget(segment)

    @rule()
    def kill(self) -> None:
        self.driver.start()
        self.opened()

    @rule(seed=st.integers(0, 1 << 16))
    def cut_power(self, seed: int) -> None:
        self.driver.files = self.driver.files.after_power_cut(Random(seed))
        self.driver.start()
        self.opened()

    # --- what a search finds -------------------------------------------------------------------

    def found(self, query: Query) -> list[int]:
        """All pages of a search."""
        offsets: list[int] = []
        while True:
            slicer = Slicer(query, self.driver.reader, self.keys, LIMIT, no_check)
            at, page = slicer.begin, list[int]()
            while not slicer.is_over(at) and len(page) < query.limit:
                part = slicer.run(at, query.limit - len(page), 1 << 20)
                assert part.at < at if query.newest else part.at > at, "no progress"
                assert not part.unreadable
                at = part.at
                page += [message.offset for message in part.matches.messages]
            offsets += page
            if slicer.is_over(at):
                return offsets
            query = replace(query, after=at if query.newest else at - 1)

    @rule(
        name=st.sampled_from(SUBJECTS),
        key=st.sampled_from(KEYS),
        header=st.none() | st.sampled_from([each for each in HEADERS if each[1] is not None]),
        text=st.sampled_from((None, None, b"apple", b"needle", b"a", b"\x02a")),
        since=TIMES,
        until=TIMES,
        bounds=st.tuples(st.none() | st.integers(0, 90), st.none() | st.integers(0, 90)),
        newest=st.booleans(),
        limit=st.sampled_from((1, 3, 1000)),
    )
    def search(
        self,
        name: str,
        key: bytes | None,
        header: tuple[str, bytes] | None,
        text: bytes | None,
        since: int | None,
        until: int | None,
        bounds: tuple[int | None, int | None],
        newest: bool,
        limit: int,
    ) -> None:
        self.check(
            name, key, header, text, since, until, *bounds, newest=newest, limit=limit, after=None
        )

    @rule(since=TIMES, until=TIMES, newest=st.booleans())
    def search_by_time(self, since: int | None, until: int | None, newest: bool) -> None:
        for name in SUBJECTS:
            self.check(name, since=since, until=until, newest=newest, limit=1000)

    @rule(newest=st.booleans(), limit=st.sampled_from((1, 2, 1000)))
    def search_all_keys(self, newest: bool, limit: int) -> None:
        for name in SUBJECTS:
            for key in KEYS:
                self.check(name, key, newest=newest, limit=limit)

    def check(self, name: str, *args: object, **options: object) -> None:
        subject = self.driver.subject(name)
        query = Query(subject, *args, **options)  # type: ignore[arg-type]
        expected = naive(self.sent[name], query, subject.earliest, subject.readable_end)
        assert self.found(query) == expected


SearchMachine.TestCase.settings = settings(
    max_examples=settings().max_examples * 3 // 10,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
)
TestSearchMachine = SearchMachine.TestCase
