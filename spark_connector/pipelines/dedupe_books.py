"""What a dedupe run remembers: `dedupe.json` in its folder, and the ids that it has seen.

    {"version": 1, "source": "orders", "target": "orders-once", "window_ms": 3600000,
     "by": "id", "id_header": "message-id",
     "next": 12000, "batch": 7, "clock_ms": 1794808845375, "read": 12000, "sent": 11200,
     "pending": {"start": 12000, "end": 13000, "now_ms": 1794808850000},
     "seen": [{"folder": "seen/00000006", "top_ms": 1794808845375}, …]}

| state | event | |
|---|---|---|
| pending null | plan | pending is the next range, on disk before anything of it is sent |
| pending | plan | the same range again: the run before broke off in it |
| pending | commit | next, clock and seen move on together; pending is null |

Every batch leaves a folder of Parquet: a row for each different id in it, with the offsets that were
let through. A folder counts when it is named here. One is dropped when its newest time has left the
window; when there are many, they are put together into one. Files are synced before they are named.

The window, the identity and the subjects are part of the run: a folder refuses to be used for others,
since what it has seen would not tell the truth about them. Nothing here knows Spark or the broker.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.durable import read_json, sync, write_json

VERSION = 1
FILE = "dedupe.json"
SEEN = "seen"
NO_CLOCK = -(1 << 62)
"""Before any time, and far enough from the end of 64 bits to reckon with."""


@dataclass(frozen=True)
class Rule:
    source: str
    target: str
    window_ms: int
    by: str
    id_header: str


@dataclass(frozen=True)
class Pending:
    start: int
    end: int
    now_ms: int
    """A time that lies ahead of this is taken for this."""


@dataclass(frozen=True)
class Seen:
    folder: str
    top_ms: int


@dataclass(frozen=True)
class Page:
    """All that changes."""

    next: int
    batch: int = 0
    clock_ms: int = NO_CLOCK
    read: int = 0
    sent: int = 0
    pending: Pending | None = None
    seen: tuple[Seen, ...] = ()


class Books:
    """`plan` and `commit`, in turn; `page` is what is on disk."""

    def __init__(self, folder: Path, rule: Rule, first: int) -> None:
        """`first` is where a new run begins to read."""
        self.folder = folder
        self.rule = rule
        self._path = folder / FILE
        if self._path.exists():
            self.page = self._read()
            self._remove_unnamed()
        else:
            self._write(Page(first))

    def plan(self, end: int, now_ms: int) -> Pending:
        """The batch to do now: the one that broke off, or else from where the last ended to `end`."""
        if self.page.pending is None:
            self._write(replace(self.page, pending=Pending(self.page.next, end, now_ms)))
        assert self.page.pending is not None
        return self.page.pending

    def skip_to(self, offset: int) -> None:
        """Goes on without what lies below, since it is deleted."""
        pending = self.page.pending
        if pending is not None:
            pending = replace(pending, start=offset, end=max(offset, pending.end))
        self._write(replace(self.page, next=offset, pending=pending))

    def folder_of(self, name: str) -> Path:
        return self.folder / SEEN / name

    def commit(self, read: int, sent: int, seen: Path, top_ms: int) -> None:
        """The batch is done; what has left the window is forgotten."""
        page = self.page
        assert page.pending is not None
        clock = max(page.clock_ms, top_ms)
        known = (*page.seen, Seen(self._name_of(seen), clock))
        kept = tuple(each for each in known if each.top_ms > clock - self.rule.window_ms)
        self._sync(seen)
        self._write(
            Page(
                next=page.pending.end,
                batch=page.batch + 1,
                clock_ms=clock,
                read=page.read + read,
                sent=page.sent + sent,
                seen=kept,
            )
        )
        self._remove_unnamed()

    def replace_seen(self, merged: Path) -> None:
        """`merged` holds all that the folders named so far hold."""
        self._sync(merged)
        top = max(each.top_ms for each in self.page.seen)
        self._write(replace(self.page, seen=(Seen(self._name_of(merged), top),)))
        self._remove_unnamed()

    def _name_of(self, folder: Path) -> str:
        return str(folder.relative_to(self.folder))

    def _sync(self, folder: Path) -> None:
        for path in [*folder.rglob("*"), folder, folder.parent, self.folder]:
            sync(path)

    def _remove_unnamed(self) -> None:
        named = {self.folder / each.folder for each in self.page.seen}
        for folder in (self.folder / SEEN).glob("*"):
            if folder not in named:
                shutil.rmtree(folder, ignore_errors=True)

    def _read(self) -> Page:
        content = read_json(self._path, VERSION)
        try:
            rule = Rule(**{name: content[name] for name in Rule.__dataclass_fields__})
            page = _page(content)
        except (KeyError, TypeError) as error:
            raise ConnectorError(f"{self._path} lacks {error}: restore it from a backup") from None
        for name, before in asdict(rule).items():
            if before != (now := getattr(self.rule, name)):
                raise ConnectorError(
                    f"{self.folder} is of a run with {name} {before}, not {now}: "
                    "give another folder, and a new run begins"
                )
        return page

    def _write(self, page: Page) -> None:
        write_json(self._path, {"version": VERSION, **asdict(self.rule), **asdict(page)})
        self.page = page


def _page(content: dict[str, Any]) -> Page:
    fields = {name: content[name] for name in Page.__dataclass_fields__}
    fields["seen"] = tuple(Seen(**each) for each in content["seen"])
    fields["pending"] = Pending(**content["pending"]) if content["pending"] else None
    return Page(**fields)
