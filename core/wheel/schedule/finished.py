"""Which messages are finished (delivered, cancelled or moved), until the schedule files say so themselves.

A schedule file never changes. Where a finished message is noted depends on where it lies, seen from F
(`filled`), the position of the log up to which schedule files hold all that was parked:

    parked from F on            `gone`: the next fill leaves it out
    in the fill under way       `_meanwhile`: the fill takes it along; it is settled when the fill is
                                finished
    in a file                   a tombstone, which the next fill writes, takes it out. None is needed for a
                                delivery that `delivered_until` (W) covers, see schedule.py
    in a file, known after a    `done`: deliveries after the last fill. Their due times are not known. Those
    restart by schedule id      that a load brings up again are left out, and get a tombstone then

A message whose due time had passed W when it was filed is in the file under W + 1 ms: it is *refiled*. Its
tombstone needs that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kumquat.core.wheel.format import Tombstone
from kumquat.core.wheel.schedule.entries import Entry
from kumquat.core.wheel.schedule.model import Fill, Key, Packed, Refiled


class Finished:
    def __init__(self, filled: int, done: Iterable[int], done_until: int) -> None:
        self.filled = filled
        self.done = set(done)
        """In files, delivered, and above `delivered_until`: known by schedule id alone."""
        self.done_until = done_until
        """None of those in `done` is due later."""
        self.gone: set[int] = set()
        """Parked since F, and finished since."""
        self.tombstones: list[Tombstone] = []
        """To be written by the next fill."""
        self._refiled: dict[int, Refiled] = {}
        self._filling: Fill | None = None
        self._meanwhile: dict[int, Tombstone | None] = {}
        """Delivered while the fill under way takes them along; with a tombstone if W does not cover it."""

    def withdrawn(self, subject_id: int, schedule_id: int, due: int) -> None:
        """A message was cancelled or moved; `due` is the time that it is filed under."""
        if schedule_id >= self._taken_along:
            self.gone.add(schedule_id)
        elif schedule_id in self.done:
            self.done.discard(schedule_id)
        else:
            refiled = self._refiled.pop(schedule_id, None)
            filed_due = due if refiled is None else refiled.filed
            self.tombstones.append(Tombstone(filed_due, schedule_id, subject_id))

    def delivered(
        self,
        subject_id: int,
        schedule_ids: Iterable[int],
        replaying: bool,
        at_hand: Callable[[int], Entry | None] | None,
    ) -> None:
        """Messages were delivered. `at_hand`: their entries, while W stays where it is; None: W covers
        them."""
        taken_along = self._taken_along
        for schedule_id in schedule_ids:
            if schedule_id >= taken_along:
                self.gone.add(schedule_id)
            elif schedule_id >= self.filled:
                self._meanwhile[schedule_id] = _tombstone(subject_id, schedule_id, at_hand)
            elif replaying:
                self.done.add(schedule_id)
            elif self._refiled and schedule_id in self._refiled:
                self.tombstones.append(
                    Tombstone(self._refiled.pop(schedule_id).filed, schedule_id, subject_id)
                )
            elif (dead := _tombstone(subject_id, schedule_id, at_hand)) is not None:
                self.tombstones.append(dead)

    @property
    def _taken_along(self) -> int:
        """Up to this position messages are in files, or in the fill under way."""
        return self._filling.end if self._filling is not None else self.filled

    def has_left(self, schedule_id: int) -> bool:
        """Whether a message that is not in a file yet is finished."""
        filling = self._filling.gone if self._filling is not None else ()
        return schedule_id in self.gone or schedule_id in self._meanwhile or schedule_id in filling

    def due_of(self, schedule_id: int, filed: int) -> int:
        """When a message is due that is filed under some time."""
        refiled = self._refiled.get(schedule_id)
        return filed if refiled is None else refiled.due

    # --- fills ---------------------------------------------------------------------------------

    def begin_fill(self, fill: Fill) -> None:
        """The fill has taken `gone` and `tombstones`."""
        assert self._filling is None
        self._filling = fill
        self.gone, self.tombstones = set(), []

    def finish_fill(self, fill: Fill) -> None:
        assert fill is self._filling
        self._filling = None
        self.filled = fill.end
        for schedule_id, refiled in fill.refiled.items():
            if schedule_id in self._meanwhile:
                self._meanwhile[schedule_id] = Tombstone(
                    refiled.filed, schedule_id, refiled.subject_id
                )
            else:
                self._refiled[schedule_id] = refiled
        for i, dead in enumerate(self.tombstones if fill.refiled else ()):
            if dead.schedule_id in fill.refiled:  # it was cancelled meanwhile
                self.tombstones[i] = dead._replace(due=self._refiled.pop(dead.schedule_id).filed)
        self.tombstones += [dead for dead in self._meanwhile.values() if dead is not None]
        self._meanwhile = {}

    def abandon_fill(self, fill: Fill) -> None:
        """What the fill took comes back, and what happened meanwhile is noted as if there had been none."""
        assert fill is self._filling
        self._filling = None
        self.gone |= fill.gone | self._meanwhile.keys()
        self._meanwhile = {}
        late = [dead for dead in self.tombstones if dead.schedule_id >= fill.start]
        self.gone.update(dead.schedule_id for dead in late)
        filed = [dead for dead in self.tombstones if dead.schedule_id < fill.start]
        self.tombstones = fill.tombstones + filed

    # --- loads ---------------------------------------------------------------------------------

    def unfinished(
        self, entries: Iterable[Packed], until: Key, mark: int, struck: set[int], live_from: int
    ) -> list[Packed]:
        """Those entries of a schedule file that have yet to be delivered, and belong to the load that began
        when the log ended at `mark`. Entries in `done` get their tombstones."""
        done, kept = self.done, []
        refiled = {
            schedule_id for schedule_id in self._refiled if schedule_id >= live_from
        }  # the wheel has them
        for entry in entries:
            due, schedule_id = entry[0], entry[1]
            if schedule_id in done:
                done.discard(schedule_id)
                if (due, schedule_id) > until:
                    self.tombstones.append(Tombstone(due, schedule_id, entry[4]))
            elif (
                (due, schedule_id) > until
                and schedule_id < mark
                and schedule_id not in struck
                and schedule_id not in refiled
            ):
                kept.append(entry)
        return kept

    def note_refiled(self, schedule_id: int, refiled: Refiled) -> None:
        """A load found a message that is filed under another time than it is due at."""
        self._refiled[schedule_id] = refiled

    def loaded_until(self, due: int) -> None:
        """All that is due before is loaded: what is still in `done` is in no file, it was merged away."""
        if due > self.done_until:
            self.done.clear()

    def struck_recently(self) -> set[int]:
        """The schedule ids that tombstones since the last fill take out."""
        return {dead.schedule_id for dead in self.tombstones}


def _tombstone(
    subject_id: int, schedule_id: int, at_hand: Callable[[int], Entry | None] | None
) -> Tombstone | None:
    entry = at_hand(schedule_id) if at_hand is not None else None
    return None if entry is None else Tombstone(entry.due, schedule_id, subject_id)
