"""Each call of the file seam fails once, then the disk is well again: nothing acked may be lost.

The story of fault_story.py is told once without a fault, to count the calls of each site. Then it is told
again for each chosen fault. What it checks, each time: nothing acked is lost, doubled, early or moved; no
acked commit goes back; nothing counts as lost or damaged, since nothing is; and the broker goes on by
itself. By default each site fails once (`make test` strikes a third of them); with `--exhaustive`, which
takes about half an hour, at several of its calls, with each error, and several times in a row.

Where the design asks for less:
- A failed fdatasync or fsync_dir of a log fences it until a restart: the kernel may have dropped what was
  to be synced, and no retry can tell (core/logs/disk/files.py). Nothing else may fence a log. After the
  restart the power is cut, to see that what was acked since does not lie upon what the sync lost.
- A start that a fault strikes may be refused with StartError. Whoever started the broker starts it again,
  and it must open then. But an EIO of a read that passes, gone when it is asked again, refuses no start.
- An EIO that shows three times in a row does not pass (core/logs/disk/unreadable.py): it may refuse a start
  (core/logs/messages/recovery/opening.py says when), and is no verdict on what lies there. It shows
  twice here.
- A message that was handed out and not committed may be handed out again.
- SQL (meta.db) is not behind the seam, and is not struck.

A second, short story is a restart (restart_story.py). There each call of housekeeping fails, alone and with
those that follow, while consumers read: trouble that ends between two segments leaves them in different
states.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

import pytest

from kumquat.core.logs.disk import local_commit, unreadable
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.gateway.tests import restart_story
from kumquat.gateway.tests.fault_story import tell
from kumquat.gateway.tests.faulty_files import ERRORS, SHORT, STOPS_SHORT, Strike, Trace
from kumquat.gateway.tests.lives import use_small_merges
from kumquat.gateway.tests.one_thread import run, use_one_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEVER_FAIL = {"clock", "expect"}
OPERATIONS = sorted(
    name
    for name in vars(Files)
    if not name.startswith("_") and name not in {*NEVER_FAIL, *vars(Protocol)}
)
TWICE, THRICE = 2, 3
MORE = {
    "pread files.record_reader.LogRecords.payload < files.fill.parked_of": "EIO",
    "pread files.record_reader.RecordReader.read < tasks.deliverer.Deliverer._read": "EIO",
    "open messages.segment.OpenFiles.pinned < messages.reader.Reader._fill": "EMFILE",
    "preadv_into messages.reader.Reader._fill": "EMFILE",
}
"""What has lost messages before: it is tried with that error too."""
SOME = 3
"""One of so many sites is struck in the short set, beside those that have lost messages before."""
ROUND = "fsync_dir disk.local_commit.LocalRound.run < flushing.flusher.outcome"
FENCED_THRICE = Strike(ROUND, 8, "ENOSPC", THRICE)
"""Restarts around a merge of schedule files: delayed messages were delivered twice after it."""
HOUSEKEEPING = ("write_index", "MessageService._index", "load_head", "rebuild", "Build", "KeyFiles")
"""Parts of the sites that put the log in order after a start."""


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_one_thread(monkeypatch)
    use_small_merges(monkeypatch)
    monkeypatch.setattr(unreadable, "_PAUSES_SECONDS", (0.0, 0.0))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def told(folder: Path, strike: Strike | None = None) -> Trace:
    trace = Trace(strike)

    async def story() -> None:
        await tell(folder, trace)

    run(story)
    return trace


_calls: Counter[str] = Counter()


@pytest.fixture
def calls(tmp_path: Path) -> Counter[str]:
    """How often each site calls when nothing fails."""
    if not _calls:
        _calls.update(told(tmp_path / "without").calls)
    return _calls


def chosen(site: str, calls: int, *, every: bool) -> list[Strike]:
    """The faults that a site is tried with. Which call and which error a site gets by default is as
    good as random, and always the same."""
    hows = [*ERRORS, SHORT] if site.startswith(STOPS_SHORT) else list(ERRORS)
    middle = (calls + 1) // 2
    if every:
        few = sorted({1, 2, middle, calls} & set(range(1, calls + 1)))
        strikes = [Strike(site, call, how) for call in few for how in hows]
        strikes += [Strike(site, middle, how, TWICE if how == "EIO" else THRICE) for how in ERRORS]
        if site.startswith("fdatasync"):
            strikes += [Strike(site, call, "EIO") for call in range(1, calls + 1)]
        return strikes
    number = crc32(site.encode())
    strikes = [Strike(site, 1 + number % calls, hows[number % len(hows)])]
    if site in MORE:
        strikes.append(Strike(site, min(2, calls), MORE[site], TWICE))
    if site == ROUND:
        strikes.append(FENCED_THRICE)
    return strikes


def why_not(folder: Path, strike: Strike) -> str | None:
    """What a fault has done, if it has done any harm."""
    try:
        trace = told(folder, strike)
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        return f"{strike}\n    {type(error).__name__}: {error}"
    return None if trace.struck else f"{strike}\n    was not reached"


@pytest.mark.parametrize("which", ["some", pytest.param("others", marks=pytest.mark.long)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_call_that_fails_once_costs_nothing_that_was_acked(
    operation: str, which: str, calls: Counter[str], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    every = bool(pytestconfig.getoption("--exhaustive"))
    sites = sorted(site for site in calls if site.split()[0] == operation)
    assert sites, f"nothing in the story calls {operation}"
    some = {*sites[::SOME], *MORE, ROUND}
    sites = [site for site in sites if (site in some) == (which == "some")]
    strikes = [strike for site in sites for strike in chosen(site, calls[site], every=every)]
    harm = [why for n, strike in enumerate(strikes) if (why := why_not(tmp_path / str(n), strike))]
    assert not harm, f"{len(harm)} of {len(strikes)} faults:\n" + "\n".join(harm)


def test_the_story_is_the_same_each_time(calls: Counter[str], tmp_path: Path) -> None:
    """Else a fault might not strike where it is meant to."""
    assert told(tmp_path / "again").calls == calls


@pytest.mark.parametrize(
    "part",
    [
        *("retention.", "merge.", "index.write_index", "file_set.FileSet.remove", "Replay."),
        *("build.Build", "keys.files.KeyFiles"),
    ],
)
def test_the_story_has_all_parts(part: str, calls: Counter[str]) -> None:
    assert MORE.keys() <= calls.keys()
    assert any(part in site for site in calls), f"nothing in the story comes to {part}"


# --- a slow disk -------------------------------------------------------------------------------


def test_on_a_slow_disk_a_write_that_fails_costs_nothing_that_was_acked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeFiles, "call_seconds", 1.0)
    monkeypatch.setattr(local_commit, "RETRY_SECONDS", 0.0)
    calls = told(tmp_path / "without").calls
    deferred = "pwritev disk.local_commit.LocalRound.run < flushing.flusher.outcome"
    assert calls[deferred] > 100, f"no write was deferred: {sorted(calls)}"
    hows = [*ERRORS, SHORT]
    strikes = [
        Strike(deferred, 1 + n * calls[deferred] // len(hows), how, THRICE)
        for n, how in enumerate(hows)
    ]
    harm = [why for n, strike in enumerate(strikes) if (why := why_not(tmp_path / str(n), strike))]
    assert not harm, f"{len(harm)} of {len(strikes)} faults:\n" + "\n".join(harm)


# --- housekeeping after a start ----------------------------------------------------------------


def restarted(folder: Path, trace: Trace) -> Counter[str]:
    before: Counter[str] = Counter()

    async def story() -> None:
        before.update(await restart_story.tell(folder, trace))

    run(story)
    return before


def housekeeping(folder: Path) -> list[tuple[str, int]]:
    """Each call of housekeeping after the restart: its site, and which call of it."""
    trace = Trace()
    before = restarted(folder, trace)
    return [
        (site, call)
        for site, calls in sorted(trace.calls.items())
        for call in range(before[site] + 1, calls + 1)
        if any(part in site for part in HOUSEKEEPING)
    ]


def of_housekeeping(calls: list[tuple[str, int]], *, every: bool) -> list[Strike]:
    """By default each index that is written fails in one way, and each other site once."""
    if every:
        return [
            Strike(site, call, how, times)
            for site, call in calls
            for how in ERRORS
            for times in (1, TWICE, TWICE if how == "EIO" else THRICE)
        ]
    seen: set[str] = set()
    strikes: list[Strike] = []
    for site, call in calls:
        is_write = "write_index" in site and site.startswith(("open", "pwritev", "rename"))
        if is_write or site not in seen:
            n = len(strikes)
            strikes.append(Strike(site, call, ERRORS[n % len(ERRORS)], 1 + n // len(ERRORS) % 2))
        seen.add(site)
    return strikes


def test_housekeeping_that_fails_for_a_moment_after_a_restart_costs_no_message(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    every = bool(pytestconfig.getoption("--exhaustive"))
    calls = housekeeping(tmp_path / "without")
    for operation in ("open ", "pwritev ", "rename "):
        ours = [site for site, _ in calls if site.startswith(operation) and "write_index" in site]
        assert len(ours) > 5, f"no index is written after the restart: {operation}"
    harm = []
    for n, strike in enumerate(of_housekeeping(calls, every=every)):
        try:
            restarted(tmp_path / str(n), Trace(strike))
        except Exception as error:
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            harm.append(f"{strike}\n    {type(error).__name__}: {error}")
    assert not harm, f"{len(harm)} faults did harm:\n" + "\n".join(harm)
