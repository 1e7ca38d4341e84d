"""What is known of the batch under way: one small file, `copies.json`, in the run's folder.

    {"version": 1, "run": "again.5f0c9e1b", "target": "orders",
     "batch": 12, "state": "begun", "end": 3400, "application": "local-1794808845375",
     "sent": 120000}

`run` is what the copies carry; `end` is where the target ended before batch 12 sent anything;
`application` is the Spark that may be sending it; `sent` counts the copies of the batches before.

| state | event | |
|---|---|---|
| none | begin n | begun n: the target's end is recorded |
| begun n | begin n | begun n: the same end; this is a repeat |
| begun n | done | done n |
| done n | begin m > n | begun m: the end is recorded anew |
| done n | begin m ≤ n | done n: there is nothing to do |

All else is an error: begun n and begin m means that the folder belongs to something else. State
changes on disk first. Nothing here knows Spark or the broker.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.durable import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSION = 1
FILE = "copies.json"


@dataclass(frozen=True)
class Entry:
    run: str
    target: str
    batch: int = -1
    state: str = "none"
    end: int = 0
    application: str = ""
    sent: int = 0


class Journal:
    """`begin` and `done`, in turn; `entry` is what is on disk."""

    def __init__(self, folder: Path, name: str, target: str) -> None:
        self.path = folder / FILE
        if not self.path.exists():
            self._write(Entry(run=f"{name}.{secrets.token_hex(4)}", target=target))
            return
        content = read_json(self.path, VERSION)
        try:
            self.entry = Entry(**{name: content[name] for name in Entry.__dataclass_fields__})
        except KeyError as error:
            raise ConnectorError(f"{self.path} lacks {error}: restore it from a backup") from None
        if self.entry.target != target:
            raise ConnectorError(
                f"{folder} is of a run into {self.entry.target}, not {target}: give another folder"
            )

    def is_done(self, batch: int) -> bool:
        return self.entry.state == "done" and batch <= self.entry.batch

    def is_begun(self, batch: int) -> bool:
        return self.entry.state == "begun" and batch == self.entry.batch

    def begin(self, batch: int, application: str, end: Callable[[], int]) -> int:
        """Gives the target's end as it was before the batch first sent anything."""
        entry = self.entry
        if self.is_begun(batch):
            self._write(replace(entry, application=application))
        elif entry.state == "begun" or batch <= entry.batch:
            raise ConnectorError(
                f"{self.path} is at batch {entry.batch} ({entry.state}), so batch {batch} cannot "
                "begin: give each run a folder of its own"
            )
        else:
            begun = replace(entry, batch=batch, state="begun", application=application)
            self._write(replace(begun, end=end()))
        return self.entry.end

    def done(self, copies: int) -> None:
        assert self.entry.state == "begun"
        self._write(replace(self.entry, state="done", sent=self.entry.sent + copies))

    def _write(self, entry: Entry) -> None:
        write_json(self.path, {"version": VERSION, **asdict(entry)})
        self.entry = entry
