"""The schedule files in use, open, and the manifest that lists them.

A file gets a number when it is opened; entries of the wheel refer to it by this number as long as the
process lives. A file that was merged into another one leaves the list at once. It leaves the disk when no
entry of the wheel points into it any more (`unused`, `remove`). If the process dies first, the next start
removes it, since no manifest names it.

Methods that block say so; the others are called on the event loop. Only one change may be under way at a
time: `Filler.lock` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from kumquat.core.logs.disk.files import Files
from kumquat.core.wheel.files import manifest as manifests
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.fill import ReadFrame, names_of, parked_of, tombstones_of
from kumquat.core.wheel.files.manifest_format import Listed, Manifest
from kumquat.core.wheel.files.writing.merge import Weighed, merge, plan_merge
from kumquat.core.wheel.files.writing.writer import write_schedule_file
from kumquat.core.wheel.format import ScheduleDamaged, hour_of
from kumquat.core.wheel.schedule.model import Fill

FOLDER = "schedule"
Live = Callable[[int], bool]
"""Whether there is a subject with this id."""


class FileSet:
    def __init__(self, files: Files, directory: Path) -> None:
        """Blocks: reads the manifest and opens what it lists."""
        self.files = files
        self.directory = directory / FOLDER
        self.manifest = manifests.load(files, self.directory)
        self._generation = self.manifest.generation
        self.current, self.lost = manifests.open_files(files, self.directory, self.manifest)
        """The files that the manifest lists, oldest stretch first; and those that are missing or
        damaged."""
        self._unlisted: list[ScheduleFile] = []
        """Files of manifests that could not be saved. A start may still find such a manifest, so they stay
        until another one is saved."""
        self._spare: list[Path] = []
        """Files that could not be removed yet."""
        self._damaged: set[ScheduleFile] = set()
        """Those that a merge found damaged."""
        self.put_off: set[ScheduleFile] = set()
        """Those whose merge failed: not tried for a while, so that others are merged."""
        self._fresh = count(1)
        self.by_number: dict[int, ScheduleFile] = {next(self._fresh): f for f in self.current}
        """All that are open."""
        self._numbers = {file: number for number, file in self.by_number.items()}

    def number_of(self, file: ScheduleFile) -> int:
        return self._numbers[file]

    def write_fill(
        self, fill: Fill, read: ReadFrame, live: Live
    ) -> tuple[ScheduleFile | None, Manifest]:
        """Blocks: write the file and the manifest of a fill, durably. OSError: neither counts."""
        file: ScheduleFile | None = None
        if not fill.is_empty:
            parked = list(parked_of(fill, read, live))
            stretch, names = (fill.start, fill.end), names_of(fill)
            file = write_schedule_file(
                self.files, self.directory, stretch, parked, tombstones_of(fill), names
            )
        manifest = Manifest(
            filled=fill.end,
            delivered_until=fill.delivered_until,
            files=[*self.manifest.files, *([Listed.of(file)] if file else [])],
            pending=fill.pending,
            remembered=fill.remembered,
            done=fill.done,
            done_until=fill.done_until,
        )
        self._save(manifest, file)
        return file, manifest

    def add(self, file: ScheduleFile | None, manifest: Manifest) -> None:
        """A fill is on disk."""
        self.manifest = manifest
        if file is not None:
            self._open(file)
            self.current = [*self.current, file]

    def settle(self, made: Sequence[ScheduleFile], manifest: Manifest) -> None:
        """Blocks: lost files are made again, or given up; save a manifest that no longer names them. A
        damaged file is renamed and kept, in case somebody can recover something from it."""
        fresh = {file.path for file in made}
        for path in [self.directory / lost.listed.name for lost in self.lost]:
            if path not in fresh and self.files.exists(path):
                self.files.rename(path, path.with_suffix(".damaged"))
        current = sorted([*self.current, *made], key=lambda file: file.stretch)
        manifest = replace(manifest, files=[Listed.of(file) for file in current])
        self._save(manifest, None)
        self.manifest, self.current, self.lost = manifest, current, []
        for file in made:
            self._open(file)

    @property
    def empty(self) -> bool:
        """There is no file, neither to be merged nor to be removed."""
        return not (self.current or self.by_number or self._spare)

    @property
    def has_tombstones(self) -> bool:
        return any(file.footer.tombstones for file in self.current)

    def plan(self, delivered_until: int) -> list[ScheduleFile]:
        """Blocks: which files should be merged now. A file that turned out to be damaged is not merged; it
        is removed when all of it has passed."""
        hour = hour_of(delivered_until)
        neighbours: list[ScheduleFile] = []
        for file in [*self.current, None]:
            if file is not None and file not in self._damaged and file not in self.put_off:
                neighbours.append(file)
                continue
            found = plan_merge([self._weigh(one, hour) for one in neighbours])
            if found is not None:
                return neighbours[found.start : found.stop]
            if file in self._damaged and file not in self.put_off and file.hours()[1] < hour:
                return [file]
            neighbours = []
        return []

    def _weigh(self, file: ScheduleFile, hour: int) -> Weighed:
        try:
            return Weighed(file.size, file.bytes_before(hour))
        except ScheduleDamaged:
            self._damaged.add(file)
            return Weighed(file.size, 0)

    def merge(
        self, inputs: Sequence[ScheduleFile], delivered_until: int, live: Live
    ) -> ScheduleFile | None:
        """Blocks: the file that replaces the inputs; None: nothing of them is needed any more."""
        hour = hour_of(delivered_until)
        if all(file.hours()[1] < hour for file in inputs):
            return None
        try:
            return merge(self.files, inputs, self.directory, hour, live)
        except ScheduleDamaged as damage:
            self._damaged.update(file for file in inputs if file.path == damage.path)
            raise
        except OSError as error:
            unread = [file for file in inputs if str(file.path) == error.filename]
            self.put_off.update(unread or inputs)
            raise

    def discard(self, file: ScheduleFile | None) -> None:
        """Blocks: remove a file that is not used after all."""
        with suppress(OSError):
            self.remove([file] if file is not None else [])

    def list_merged(self, inputs: Sequence[ScheduleFile], merged: ScheduleFile | None) -> Manifest:
        """Blocks: save a manifest that has the merged file in the place of the inputs, durably."""
        listed = [Listed.of(file) for file in self.current]
        at = self.current.index(inputs[0])
        listed[at : at + len(inputs)] = [Listed.of(merged)] if merged is not None else []
        manifest = replace(self.manifest, files=listed)
        self._save(manifest, merged)
        return manifest

    def replace(
        self, inputs: Sequence[ScheduleFile], merged: ScheduleFile | None, manifest: Manifest
    ) -> None:
        """A merge is on disk."""
        self.manifest = manifest
        current = list(self.current)
        at = current.index(inputs[0])
        current[at : at + len(inputs)] = [merged] if merged is not None else []
        self.current = current
        if merged is not None:
            self._open(merged)

    def unused(self, in_use: set[int]) -> list[ScheduleFile]:
        """Files that are not listed any more and that no entry points into. They are forgotten here: the
        caller removes them."""
        spare = [
            file
            for number, file in self.by_number.items()
            if file not in self.current and number not in in_use
        ]
        for file in spare:
            del self.by_number[self._numbers.pop(file)]
            self._damaged.discard(file)
            self.put_off.discard(file)
        return spare

    def remove(self, spare: Sequence[ScheduleFile]) -> None:
        """Blocks. OSError: some could not be removed; they are tried again with the next ones."""
        for file in spare:
            file.close()
        paths, self._spare = [*self._spare, *(file.path for file in spare)], []
        failure: OSError | None = None
        for path in paths:
            try:
                self.files.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._spare.append(path)
                failure = error
        if failure is not None:
            raise failure

    def close(self) -> None:
        for file in self.by_number.values():
            file.close()

    def _open(self, file: ScheduleFile) -> None:
        number = next(self._fresh)
        self.by_number[number] = file
        self._numbers[file] = number

    def _save(self, manifest: Manifest, file: ScheduleFile | None) -> None:
        manifest.generation = self._generation = self._generation + 1
        try:
            manifests.save(self.files, self.directory, manifest)
        except OSError:
            if file is not None:
                file.close()
                self._unlisted.append(file)
            raise
        spare, self._unlisted = self._unlisted, []
        for one in spare:
            self.discard(one)
