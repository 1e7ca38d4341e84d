"""What is known of a run and of its batch under way: one small file, `copies.json`, in its folder.

    {"version": 2, "run": "again.5f0c9e1b",
     "kind": "replay", "name": "again", "source": "orders", "target": "again", "memory": "plan.json",
     "ids": {"orders": "b1c9…", "again": "77ab…"},
     "batch": 12, "range": [600000, 650000], "state": "begun", "end": 3400,
     "sender": {"boot": "94f9…", "space": "pid:[4026531836]", "pid": 19147, "started": 837162},
     "copies": 0, "sent": 120000, "doubled": 0}

The first lines never change. `run` is the mark that the copies carry, and that `memory`, the caller's
own file in this folder, carries too: neither counts without the other. `ids` distinguishes the broker's
subjects from others of the same name that were made later. A run with another kind, name, source, target or
id may not use the folder.

`range` is what batch 12 covers; `end` is where the target ended before it sent anything; `sender` is
the process that may be sending it; `copies` counts those of the last batch that is done, `sent`
and `doubled` those of all.

| state | event | |
|---|---|---|
| none | begin 0 | begun 0: range and target's end are recorded |
| begun n | begin n, same range | begun n: the same end; this is a repeat |
| begun n | done | done n |
| done n | begin n, same range | done n: there is nothing to do |
| done n | begin n+1 | begun n+1: range and end are recorded again |

Everything else is an error: the folder belongs to another run, or one of its files is older than the
other. State changes on disk first. Nothing here knows Spark or the broker.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.common.durable import write_json
from kumquat.spark.pipelines.common.run_memory import NEW_RUN, Range, read_memory
from kumquat.spark.pipelines.copies.senders import Sender

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSION = 2
FILE = "copies.json"


@dataclass(frozen=True)
class Run:
    """What a folder is for."""

    kind: str
    """The pipeline."""
    name: str
    source: str
    target: str
    memory: str
    """The pipeline's own file in the folder, which it writes after the journal."""


@dataclass(frozen=True)
class Entry:
    run: str
    batch: int = -1
    range: Range = (0, 0)
    state: str = "none"
    end: int = 0
    sender: Sender | None = None
    copies: int = 0
    sent: int = 0
    doubled: int = 0


class Journal:
    """`begin` and `done`, in turn; `entry` is what is on disk."""

    def __init__(self, folder: Path, run: Run, ids: dict[str, str]) -> None:
        """`ids` are those of the subjects on the broker, now."""
        self.path = folder / FILE
        self._run = run
        self.ids = ids
        memory = folder / run.memory
        if not self.path.exists():
            if memory.exists():
                raise ConnectorError(
                    f"{memory} is there without {self.path}: restore it from a backup, or {NEW_RUN}"
                )
            self._write(Entry(run=f"{run.name}.{secrets.token_hex(4)}"))
            return
        before, self.ids, self.entry = read_memory(self.path, VERSION, _parsed)
        self._check(folder, before)
        self.check_ids(ids)
        if self.entry.batch >= 0 and not memory.exists():
            raise ConnectorError(
                f"{self.path} is at batch {self.entry.batch}, but there is no {memory}: restore it "
                f"from a backup, or {NEW_RUN}"
            )

    def check_ids(self, now: dict[str, str]) -> None:
        for subject, before in self.ids.items():
            if now.get(subject) != before:
                raise ConnectorError(
                    f"{subject} is not the subject that this run began with: it was deleted and made "
                    f"again; {NEW_RUN}"
                )

    def check_next(self, batch: int, range_: Range | None) -> None:
        """Checks that the caller's next batch is the journal's too. With a range: it may have begun."""
        entry = self.entry
        follows = entry.state != "begun" and batch == entry.batch + 1
        if not follows and (entry.batch, entry.range) != (batch, range_):
            raise ConnectorError(
                f"{self.path} is at batch {entry.batch} ({entry.state}), but {self._run.memory} is at "
                f"{batch}: restore both from one backup, or {NEW_RUN}"
            )

    def is_done(self, batch: int, range_: Range) -> bool:
        return self.entry.state == "done" and self._is_at(batch, range_)

    def is_begun(self, batch: int, range_: Range) -> bool:
        return self.entry.state == "begun" and self._is_at(batch, range_)

    def begin(
        self, batch: int, range_: Range, sender: Sender | None, end: Callable[[], int]
    ) -> int:
        """Returns the target's end as it was before the batch first sent anything."""
        entry = self.entry
        if self.is_begun(batch, range_):
            self._write(replace(entry, sender=sender))
        elif entry.state == "begun" or batch != entry.batch + 1:
            raise ConnectorError(
                f"{self.path} is at batch {entry.batch} ({entry.state}), so batch {batch} cannot "
                "begin: give each run a folder of its own"
            )
        else:
            begun = replace(entry, batch=batch, range=range_, state="begun", sender=sender)
            self._write(replace(begun, end=end(), copies=0))
        return self.entry.end

    def done(self, copies: int, doubled: int = 0) -> None:
        entry = self.entry
        assert entry.state == "begun"
        done = replace(entry, state="done", sender=None, copies=copies)
        sent, twice = entry.sent + copies, entry.doubled + doubled
        self._write(replace(done, sent=sent, doubled=twice))

    def _is_at(self, batch: int, range_: Range) -> bool:
        if batch != self.entry.batch:
            return False
        if range_ != self.entry.range:
            raise ConnectorError(
                f"{self.path} has batch {batch} with offsets {self.entry.range}, not {range_}: give "
                "each run a folder of its own"
            )
        return True

    def _check(self, folder: Path, before: Run) -> None:
        for name, was in asdict(before).items():
            if was != (now := getattr(self._run, name)):
                raise ConnectorError(
                    f"{folder} is of a run with {name} {was}, not {now}: give each run a folder of "
                    "its own"
                )

    def _write(self, entry: Entry) -> None:
        head = {"version": VERSION, **asdict(self._run), "ids": self.ids}
        write_json(self.path, head | asdict(entry))
        self.entry = entry


def _parsed(content: dict[str, Any]) -> tuple[Run, dict[str, str], Entry]:
    run = Run(**{field.name: content[field.name] for field in fields(Run)})
    entry = {field.name: content[field.name] for field in fields(Entry)}
    start, end = entry["range"]
    sender = Sender(**entry["sender"]) if entry["sender"] else None
    entry |= {"range": (int(start), int(end)), "sender": sender}
    return run, dict(content["ids"]), Entry(**entry)
