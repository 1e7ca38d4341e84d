"""A model of what a disk holds after a power cut: pages, sizes and names, synced or not.

Each file has the content that a process sees (page cache) and the content that is safe. Between
the two lie, per 4 KiB page, all versions since the last sync, in order: the kernel may have
written back any of them, at any time, in any order over pages and files. Inside a page a cut tears
at 512-byte sectors, each of any version. A file's size is metadata with a life of its own: any
size since the last sync, whatever its pages did; where a size landed and a page did not, the file
reads zeros. Names are a third thing: a directory's unsynced changes land in any subset, a rename
as one.

A sync that fails is Linux's: the pages are clean from then on, so the next sync succeeds without
them, and each may or may not be on the disk (`suspects`). Only writing such a page again, and a
sync that succeeds, makes it safe. (A size is in the journal, and is not dropped.)

`Fate` decides what lands. It draws a mood first, so that the extremes (nothing, all, all but a
page) are not rare.

Left out: what no file system we run on does, such as a synced page that changes, or a sector torn
inside.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

PAGE = 4096
SECTOR = 512
ZEROS = bytes(PAGE)

Mood = Literal["nothing", "all", "mostly", "any", "torn"]
MOODS: tuple[Mood, ...] = ("nothing", "all", "mostly", "any", "torn")
ODDS: dict[Mood, float] = {"nothing": 0.0, "all": 1.0, "mostly": 0.9, "any": 0.5, "torn": 0.5}


class Fate:
    """What of the unsynced state reaches the disk, by a seeded generator."""

    def __init__(self, rng: Random, mood: Mood | None = None) -> None:
        self._rng = rng
        self.mood: Mood = rng.choice(MOODS) if mood is None else mood

    def lands(self) -> bool:
        return self._rng.random() < ODDS[self.mood]

    def size(self, sizes: Sequence[int]) -> int:
        """One of the sizes that the file had, the safe one first, the current one last."""
        if self.mood in ("nothing", "all"):
            return sizes[-1 if self.lands() else 0]
        return sizes[-1] if self.mood == "mostly" and self.lands() else self._rng.choice(sizes)

    def page(self, versions: Sequence[bytes]) -> bytes:
        """One of a page's versions, the safe one first, or sectors of several."""
        if self.mood != "torn" or self._rng.random() < 0.3:
            if not self.lands():
                return versions[0]
            return versions[-1] if self.mood == "all" else self._rng.choice(versions[1:])
        return b"".join(
            self._rng.choice(versions)[start : start + SECTOR] for start in range(0, PAGE, SECTOR)
        )


class FileNode:
    """A file: what a process sees, what is safe, and every version of a page between the two."""

    def __init__(self) -> None:
        self.size = 0
        self.pages: dict[int, bytes] = {}
        self.blocks: set[int] = set()
        self._safe_size = 0
        self._safe: dict[int, bytes] = {}
        self._clock = 0
        self._versions: dict[int, list[tuple[int, bytes]]] = {}
        self._sizes: list[tuple[int, int]] = []
        self._suspects: dict[int, list[bytes]] = {}

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        if not size:
            return b""
        first, last = offset // PAGE, (offset + size - 1) // PAGE
        joined = b"".join(self.pages.get(number, ZEROS) for number in range(first, last + 1))
        return joined[offset - first * PAGE :][:size]

    def write(self, offset: int, data: bytes) -> None:
        self._clock += 1
        done = 0
        while done < len(data):
            number, start = divmod(offset + done, PAGE)
            piece = data[done : done + PAGE - start]
            page = self.pages.get(number, ZEROS)
            self._set_page(number, page[:start] + piece + page[start + len(piece) :])
            self.blocks.add(number)
            done += len(piece)
        if data and offset + len(data) > self.size:
            self._set_size(offset + len(data))

    def reserve(self, offset: int, size: int) -> None:
        self.blocks.update(range(offset // PAGE, -(-(offset + size) // PAGE)))
        if size and offset + size > self.size:
            self._clock += 1
            self._set_size(offset + size)

    def truncate(self, size: int) -> None:
        self._clock += 1
        kept, start = divmod(size, PAGE)
        for number in [number for number in self.pages if number >= kept]:
            start_here = start if number == kept else 0
            page = self.pages[number][:start_here].ljust(PAGE, b"\0")
            self._set_page(number, page)
        self.blocks = {number for number in self.blocks if number * PAGE < size}
        self._set_size(size)

    def _set_page(self, number: int, page: bytes) -> None:
        self.pages[number] = page
        self._versions.setdefault(number, []).append((self._clock, page))

    def _set_size(self, size: int) -> None:
        self.size = size
        self._sizes.append((self._clock, size))

    def unsynced(self) -> bool:
        return bool(self._versions or self._sizes)

    def sync_begins(self) -> int:
        """A mark for `sync_ends`: what comes later is not covered by this sync."""
        return self._clock

    def sync_ends(self, mark: int) -> None:
        for number, page in self._take_versions(mark):
            self._safe[number] = page[-1]
            self._suspects.pop(number, None)
        sizes = self._take_sizes(mark)
        if sizes:
            self._safe_size = sizes[-1]

    def sync_fails(self, mark: int) -> None:
        for number, pages in self._take_versions(mark):
            self._suspects.setdefault(number, []).extend(pages)

    def _take_versions(self, mark: int) -> Iterator[tuple[int, list[bytes]]]:
        for number, versions in list(self._versions.items()):
            taken = [page for clock, page in versions if clock <= mark]
            left = [version for version in versions if version[0] > mark]
            if left:
                self._versions[number] = left
            else:
                del self._versions[number]
            if taken:
                yield number, taken

    def _take_sizes(self, mark: int) -> list[int]:
        taken = [size for clock, size in self._sizes if clock <= mark]
        self._sizes = [entry for entry in self._sizes if entry[0] > mark]
        return taken

    def after_cut(self, fate: Fate) -> "FileNode":
        """A file that a power cut may leave of this one."""
        left = FileNode()
        sizes = [self._safe_size, *(size for _, size in self._sizes)]
        size = sizes[0] if len(sizes) == 1 else fate.size(sizes)
        pages = dict(self._safe)
        for number in sorted(self._versions.keys() | self._suspects.keys()):
            later = [page for _, page in self._versions.get(number, ())]
            pages[number] = fate.page(
                [pages.get(number, ZEROS), *self._suspects.get(number, ()), *later]
            )
        left.overwrite(
            b"".join(pages.get(number, ZEROS) for number in range(-(-size // PAGE)))[:size]
        )
        return left

    def overwrite(self, content: bytes) -> None:
        """Makes this the content, as safe as can be: for a disk as found at a start, and for
        damage."""
        self.__init__()  # type: ignore[misc]
        self.write(0, content)
        self.sync_ends(self._clock)

    def clone(self) -> "FileNode":
        """The same file with the same doubts: what a process that was killed leaves."""
        twin = FileNode()
        twin.__dict__.update(
            {
                name: value.copy() if isinstance(value, dict | list | set) else value
                for name, value in self.__dict__.items()
            }
        )
        twin._versions = {number: list(kept) for number, kept in self._versions.items()}
        twin._suspects = {number: list(kept) for number, kept in self._suspects.items()}
        return twin


class DirNode:
    """A directory: its names as a process sees them, as they are safe, and the changes between."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self._safe: dict[str, Node] = {}
        self._changes: list[tuple[str | None, str | None, Node]] = []

    def change(self, removed: str | None, added: str | None, node: "Node") -> None:
        """A create, unlink or rename: lands whole or not at all."""
        self._changes.append((removed, added, node))
        self._apply(self.names, removed, added, node)

    def sync(self) -> None:
        self._safe = dict(self.names)
        self._changes = []

    def unsynced(self) -> bool:
        return bool(self._changes)

    def after_cut(self, fate: Fate) -> "DirNode":
        names = dict(self._safe)
        for change in self._changes:
            if fate.lands():
                self._apply(names, *change)
        return self._holding({name: node.after_cut(fate) for name, node in names.items()})

    def clone(self) -> "DirNode":
        twins: dict[int, Node] = {}

        def twin(node: Node) -> Node:
            if id(node) not in twins:
                twins[id(node)] = node.clone()
            return twins[id(node)]

        copy = DirNode()
        copy.names = {name: twin(node) for name, node in self.names.items()}
        copy._safe = {name: twin(node) for name, node in self._safe.items()}
        copy._changes = [(removed, added, twin(node)) for removed, added, node in self._changes]
        return copy

    @staticmethod
    def _holding(names: "dict[str, Node]") -> "DirNode":
        directory = DirNode()
        directory.names = names
        directory.sync()
        return directory

    @staticmethod
    def _apply(
        names: "dict[str, Node]", removed: str | None, added: str | None, node: "Node"
    ) -> None:
        if removed is not None:
            names.pop(removed, None)
        if added is not None:
            names[added] = node


Node = FileNode | DirNode
