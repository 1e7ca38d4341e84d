"""What a dedupe run remembers: `dedupe.json` in its folder, and the ids that it has seen.

    {"version": 2, "run": "dedupe.5f0c9e1b", "source": "orders", "target": "orders-once",
     "window_ms": 3600000, "by": "header", "id_header": "message-id",
     "next": 12000, "batch": 7, "clock_ms": 1794808845375,
     "read": 12000, "nameless": 3, "sent": 11200, "unsent": 0, "lost": [[400, 500]],
     "pending": {"start": 12000, "end": 13000, "now_ms": 1794808850000,
                 "decided": {"folder": "seen/00000007", "read": 1000, "nameless": 0, "sent": 930,
                             "top_ms": 1794808849000}},
     "seen": [{"folder": "seen/00000006", "top_ms": 1794808845375}, …]}

| state | event | |
|---|---|---|
| pending null | plan | pending is the next range, not decided |
| pending, not decided | plan | the same range again: the run before was interrupted in it |
| pending, not decided | skip | pending null: nothing of it was sent, so it may be planned again |
| pending, not decided | decide | what is let through is fixed, on disk before anything of it is sent |
| pending, decided | commit | next, clock and seen move on together; pending is null |

Every batch leaves a folder of Parquet: a row for each different id in it, with the offsets that were let
through. A folder counts when it is named here. A batch is decided once: even if the run is interrupted
afterwards, or retention deletes messages meanwhile, its folder says what is let through. A folder is
dropped when its newest time has left the window; when there are many, they are merged into one. Files are
synced before they are named.

`lost` are ranges that retention deleted before they were read. `unsent` counts messages that were let
through but deleted before they could be sent, or before it was known that they were (see dedupe/steps.py).
`nameless` are messages without an id.

The window, the identity and the subjects are part of the run: a folder cannot be used with others,
since the ids that it has seen would be wrong for them. `run` is the journal's mark. Nothing
here knows Spark or the broker.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.common.durable import sync, write_json
from kumquat.spark.pipelines.common.run_memory import check_mark, read_memory

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.spark.pipelines.common.run_memory import Range

VERSION = 2
FILE = "dedupe.json"
SEEN = "seen"
NO_CLOCK = -(1 << 62)
"""Before any time, and far enough from the end of 64 bits to calculate with."""


@dataclass(frozen=True)
class Rule:
    source: str
    target: str
    window_ms: int
    by: str
    id_header: str


@dataclass(frozen=True)
class Decided:
    folder: str
    read: int
    nameless: int
    sent: int
    """How many should be sent."""
    top_ms: int


@dataclass(frozen=True)
class Pending:
    start: int
    end: int
    now_ms: int
    """A time later than this counts as this."""
    decided: Decided | None = None

    @property
    def range(self) -> Range:
        return self.start, self.end


@dataclass(frozen=True)
class Seen:
    folder: str
    top_ms: int


@dataclass(frozen=True)
class State:
    """Everything that changes during a run."""

    next: int
    batch: int = 0
    clock_ms: int = NO_CLOCK
    read: int = 0
    nameless: int = 0
    sent: int = 0
    unsent: int = 0
    lost: tuple[Range, ...] = ()
    pending: Pending | None = None
    seen: tuple[Seen, ...] = ()


class StateFile:
    """`plan`, `decide` and `commit`, in turn; `state` is what is on disk."""

    def __init__(self, folder: Path, rule: Rule, run: str, first: int) -> None:
        """`first` is where a new run begins to read."""
        self.folder = folder
        self.rule = rule
        self._run = run
        self._path = folder / FILE
        if self._path.exists():
            self.state = self._read()
        else:
            self._write(State(first))

    def plan(self, end: int, now_ms: int) -> Pending:
        """The next batch: the interrupted one, or else from where the last ended to `end`."""
        if self.state.pending is None:
            assert end > self.state.next
            self._write(replace(self.state, pending=Pending(self.state.next, end, now_ms)))
        assert self.state.pending is not None
        return self.state.pending

    def skip_to(self, offset: int) -> None:
        """Skips what lies below, since it is deleted."""
        state = self.state
        assert offset > state.next
        assert state.pending is None or state.pending.decided is None
        lost = (*state.lost, (state.next, offset))
        self._write(replace(state, next=offset, pending=None, lost=lost))

    def folder_of(self, name: str) -> Path:
        return self.folder / SEEN / name

    def decide(self, folder: Path, *, read: int, nameless: int, sent: int, top_ms: int) -> Pending:
        """From now on this is what the batch lets through."""
        state = self.state
        assert state.pending is not None
        assert state.pending.decided is None
        decided = Decided(self._name_of(folder), read, nameless, sent, top_ms)
        self._sync(folder)
        pending = replace(state.pending, decided=decided)
        self._write(replace(state, pending=pending))
        return pending

    def commit(self, sent: int) -> None:
        """The batch is done, and so many of its messages were sent; what has left the window is
        forgotten."""
        state = self.state
        assert state.pending is not None
        decided = state.pending.decided
        assert decided is not None
        clock = max(state.clock_ms, decided.top_ms)
        known = (*state.seen, Seen(decided.folder, clock))
        kept = tuple(each for each in known if each.top_ms > clock - self.rule.window_ms)
        self._write(
            State(
                next=state.pending.end,
                batch=state.batch + 1,
                clock_ms=clock,
                read=state.read + decided.read,
                nameless=state.nameless + decided.nameless,
                sent=state.sent + sent,
                unsent=state.unsent + decided.sent - sent,
                lost=state.lost,
                seen=kept,
            )
        )
        self.clean()

    def replace_seen(self, merged: Path) -> None:
        """`merged` holds all that the folders named so far hold."""
        self._sync(merged)
        top = max(each.top_ms for each in self.state.seen)
        self._write(replace(self.state, seen=(Seen(self._name_of(merged), top),)))
        self.clean()

    def clean(self) -> None:
        """Removes the folders that do not count. Not before it is known that this is the newest
        state: that of a backup does not name what the newer one did."""
        named = {self.folder / each.folder for each in self.state.seen}
        if self.state.pending is not None and self.state.pending.decided is not None:
            named.add(self.folder / self.state.pending.decided.folder)
        for folder in (self.folder / SEEN).glob("*"):
            if folder not in named:
                shutil.rmtree(folder, ignore_errors=True)

    def _name_of(self, folder: Path) -> str:
        return str(folder.relative_to(self.folder))

    def _sync(self, folder: Path) -> None:
        for path in [*folder.rglob("*"), folder, folder.parent, self.folder]:
            sync(path)

    def _read(self) -> State:
        run, rule, state = read_memory(self._path, VERSION, _parsed)
        for name, before in asdict(rule).items():
            if before != (now := getattr(self.rule, name)):
                raise ConnectorError(
                    f"{self.folder} is of a run with {name} {before}, not {now}: "
                    "give another folder, and a new run begins"
                )
        check_mark(self._path, run, self._run)
        return state

    def _write(self, state: State) -> None:
        head = {"version": VERSION, "run": self._run, **asdict(self.rule)}
        write_json(self._path, head | asdict(state))
        self.state = state


def _parsed(content: dict[str, Any]) -> tuple[str, Rule, State]:
    rule = Rule(**{name: content[name] for name in Rule.__dataclass_fields__})
    state = {name: content[name] for name in State.__dataclass_fields__}
    state["seen"] = tuple(Seen(**each) for each in content["seen"])
    state["lost"] = tuple((int(start), int(end)) for start, end in content["lost"])
    if pending := content["pending"]:
        decided = Decided(**pending["decided"]) if pending["decided"] else None
        state["pending"] = Pending(**pending | {"decided": decided})
    return str(content["run"]), rule, State(**state)
