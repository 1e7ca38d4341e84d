"""Writes the flat decoder of one version of a message: `decode(buf, pos=0) -> (message, end)`.

It walks the reference construct and emits one function that uses only local variables. What makes it
fast:

- adjacent fixed fields are one `unpack_from`, and the length, count or tag byte that follows them
  is part of it: every varint has at least one byte, so reading one as "B" never reads too far;
- varints of one byte, which nearly all are, need no call; integer arrays are one call;
- objects are made with `object.__new__` and filled, without their `__init__`.

What makes it safe: a length must fit in the bytes left before anything is sliced, and a count times
the smallest possible size of an element must fit before anything is built. What a message costs is also
counted: elements of arrays and tagged fields together may be no more than MAX_ELEMENTS, in a request
no more than MAX_REQUEST_ELEMENTS. That bounds time and memory for any bytes.
`end` is the end of the frame, or, inside a tagged field, of that field. Strings and bytes are
copied out; records stay views of the frame.
"""

from __future__ import annotations

from struct import unpack_from
from typing import TYPE_CHECKING, Any

from kumquat.gateway.wire.code_writer import CodeWriter, run_path
from kumquat.gateway.wire.errors import WireError
from kumquat.gateway.wire.reference import FORMATS, MAX_STRING, Blob, Many, Perhaps, Text, Version
from kumquat.gateway.wire.varint import finish_uvarint, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

    from kumquat.gateway.wire.declare import Field

SIZES = {"?": 1, "b": 1, "h": 2, "i": 4, "q": 8, "16s": 16}
ARRAY_FORMATS = frozenset("bhiq")
MAX_ELEMENTS = 1_000_000
MAX_REQUEST_ELEMENTS = 250_000
"""An admin that names 100,000 topics in one request stays below. Large requests are decoded in a thread."""
MAX_PRODUCE_ELEMENTS = 20_000
"""10,000 topics, more than fit into the megabyte that producers send at once. A Produce is always decoded
on the event loop, and this takes some 30 ms."""
MAX_HEADER_TAGS = 100


def bad_size(size: int, left: int) -> WireError:
    if size < 0:
        return WireError("null, but not nullable" if size == -1 else f"negative length {size}")
    return WireError(f"{size} announced, but only {left} bytes left")


def unpack_many(formats: str, buf: memoryview, pos: int) -> list[Any]:
    return list(unpack_from(formats, buf, pos))


def skip_tags(buf: memoryview, pos: int, count: int, end: int) -> int:
    """The position after `count` tagged fields, none of them known."""
    for _ in range(count):
        _tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        if size > end - pos:
            raise bad_size(size, end - pos)
        pos += size
    return pos


def smallest(node: Any) -> int:
    """The least number of bytes that a value of this construct takes."""
    if isinstance(node, Version):
        return sum(smallest(sub.subcon) for sub in node.subcons) + node.flexible
    if isinstance(node, Perhaps):
        return 1
    if isinstance(node, (Text, Blob, Many)):
        return 1 if node.compact else int(node.plain.sizeof())
    return SIZES[FORMATS[id(node)]]


def is_counted(node: Any) -> bool:
    """True when there is an array or a section of tagged fields in it."""
    if isinstance(node, Version):
        return bool(node.flexible) or any(is_counted(sub.subcon) for sub in node.subcons)
    if isinstance(node, Perhaps):
        return is_counted(node.subcon)
    return isinstance(node, Many)


class Decoder:
    """Emits the code; `pending` are the fixed-size items read by the next unpack."""

    def __init__(self, title: str, root: Version, max_elements: int) -> None:
        self.root = root
        self.max_elements = max_elements
        self.out = CodeWriter(title, "def decode(buf, pos=0):")
        self.pending: list[tuple[str, str, str]] = []
        for value in (finish_uvarint, read_uvarint, skip_tags, bad_size, WireError):
            self.out.constant(value.__name__, value)
        self.out.constant("new", object.__new__)

    def build(self) -> Callable[[memoryview, int], tuple[Any, int]]:
        out = self.out
        with out.block("if buf.__class__ is not memoryview:"):
            out.line("buf = memoryview(buf)")
        out.line("end = len(buf)")
        if is_counted(self.root):
            out.line(f"room = {self.max_elements}")
        message = self.structure(self.root)
        out.line(f"return {message}, pos")
        return out.compile("decode", "pos")

    # -- fixed-size items --------------------------------------------------------------------

    def take(self, fmt: str, target: str) -> None:
        self.pending.append((fmt, target, ".".join(self.out.path)))

    def flush(self) -> None:
        if not self.pending:
            return
        formats = "".join(fmt for fmt, _, _ in self.pending)
        targets = ", ".join(target for _, target, _ in self.pending)
        path = run_path([path for _, _, path in self.pending])
        if formats == "B":
            self.out.line(f"{targets} = buf[pos]", path)
            self.out.line("pos += 1")
        else:
            unpack, size = self.out.unpacker(formats)
            comma = "," if len(self.pending) == 1 else ""
            self.out.line(f"{targets}{comma} = {unpack}(buf, pos)", path)
            self.out.line(f"pos += {size}")
        self.pending.clear()

    def size(self, node: Text | Blob | Many) -> str:
        """Read a length or count; the variable holds it as it was sent: compact is one more."""
        name = self.out.fresh("n")
        plain = "h" if isinstance(node, Text) else "i"
        self.take("B" if node.compact else plain, name)
        self.flush()
        if node.compact:
            with self.out.block(f"if {name} > 127:"):
                self.longer(node, name)
        return name

    def longer(self, node: Text | Blob | Many, name: str) -> None:
        """The rest of a varint of more than one byte; inline where two bytes are the usual."""
        if isinstance(node, Blob) and node.view:
            self.out.line("q = buf[pos]")
            with self.out.block("if q < 128:"):
                self.out.line(f"{name} += q - 1 << 7")
                self.out.line("pos += 1")
            self.out.line("else:")
            self.out.line(f"    {name}, pos = finish_uvarint(buf, pos, {name})")
        else:
            self.out.line(f"{name}, pos = finish_uvarint(buf, pos, {name})")
        if isinstance(node, Text):
            with self.out.block(f"if {name} > {MAX_STRING + 1}:"):
                self.out.line(f'raise WireError(f"string of {{{name} - 1}} bytes")')

    # -- values ------------------------------------------------------------------------------

    def structure(self, node: Version) -> str:
        """Emit the decoding of a struct; gives the variable that holds it."""
        out = self.out
        cls = node.structure.cls
        out.constant(cls.__name__, cls)
        name = out.fresh("m")
        self.flush()
        out.line(f"{name} = new({cls.__name__})")
        self.defaults(name, [*node.absent, *node.tagged.values()])
        for field, sub in zip(node.plain, node.subcons, strict=True):
            with out.inside(field.name):
                self.value(sub.subcon, f"{name}.{field.name}")
        if node.flexible:
            self.tags(node, name)
        self.flush()
        return name

    def defaults(self, name: str, fields: list[Field]) -> None:
        groups: dict[str, list[str]] = {}
        for field in fields:
            if field.type.default_is_fresh:
                fresh = "[]"
                if field.type.structure is not None:
                    cls = field.type.structure.cls
                    fresh = f"{self.out.constant(cls.__name__, cls)}()"
                self.out.line(f"{name}.{field.name} = {fresh}")
            else:
                literal = repr(field.type.default_value())
                groups.setdefault(literal, []).append(f"{name}.{field.name}")
        for literal, targets in groups.items():
            self.out.line(" = ".join([*targets, literal]))

    def value(self, node: Any, target: str) -> None:
        if isinstance(node, Text):
            self.sized(node, target, ".tobytes().decode()")
        elif isinstance(node, Blob):
            self.sized(node, target, "" if node.view else ".tobytes()")
        elif isinstance(node, Many):
            self.array(node, target)
        elif isinstance(node, Perhaps):
            self.perhaps(node, target)
        elif isinstance(node, Version):
            made = self.structure(node)
            self.out.line(f"{target} = {made}")
        else:
            self.take(FORMATS[id(node)], target)

    def sized(self, node: Text | Blob, target: str, convert: str) -> None:
        out = self.out
        n = self.size(node)
        if node.nullable:
            out.line(f"if {n} == {0 if node.compact else -1}:")
            out.line(f"    {target} = None")
            out.line("else:")
            out.indent += 1
        out.line(f"q = pos + {n}{' - 1' if node.compact else ''}")
        with out.block("if not pos <= q <= end:"):
            out.line("raise bad_size(q - pos, end - pos)")
        out.line(f"{target} = buf[pos:q]{convert}")
        out.line("pos = q")
        if node.nullable:
            out.indent -= 1

    def array(self, node: Many, target: str) -> None:
        out = self.out
        n = self.size(node)
        if node.compact:
            out.line(f"{n} -= 1")
        if node.nullable:
            out.line(f"if {n} == -1:")
            out.line(f"    {target} = None")
            out.line("else:")
            out.indent += 1
        least = smallest(node.element)
        with out.block(f"if not 0 <= {n} * {least} <= end - pos:"):
            out.line(f"raise bad_size({n}, end - pos)")
        self.count(n)
        fmt = FORMATS.get(id(node.element))
        if fmt in ARRAY_FORMATS:
            out.constant("unpack_many", unpack_many)
            out.line(f'{target} = unpack_many(f">{{{n}}}{fmt}", buf, pos) if {n} else []')
            out.line(f"pos += {n} * {least}")
        else:
            self.elements(node, target, n)
        if node.nullable:
            out.indent -= 1

    def count(self, n: str) -> None:
        """Emit the check that so many more elements or tagged fields are not too many."""
        self.out.line(f"room -= {n}")
        with self.out.block("if room < 0:"):
            self.out.line(f'raise WireError("more than {self.max_elements} elements")')

    def elements(self, node: Many, target: str, n: str) -> None:
        out = self.out
        items = out.fresh("a")
        out.line(f"{items} = {target} = []")
        # For the one or two elements that are usual, quicker than making a range.
        with out.block(f"while {n}:"):
            out.path[-1] += "[]"
            out.line(f"{n} -= 1")
            if isinstance(node.element, Version):
                made = self.structure(node.element)
            else:
                made = out.fresh("v")
                self.value(node.element, made)
                self.flush()
            out.line(f"{items}.append({made})")

    def perhaps(self, node: Perhaps, target: str) -> None:
        out = self.out
        mark = out.fresh("k")
        self.take("b", mark)
        self.flush()
        with out.block(f"if {mark} == -1:"):
            out.line(f"{target} = None")
        with out.block(f"elif {mark} == 1:"):
            made = self.structure(node.subcon)
            out.line(f"{target} = {made}")
        with out.block("else:"):
            out.line(f'raise WireError(f"{{{mark}}} is neither null nor present")')

    # -- tagged fields -----------------------------------------------------------------------

    def tags(self, node: Version, name: str) -> None:
        out = self.out
        with out.inside("tags"):
            count = out.fresh("t")
            self.take("B", count)
            self.flush()
            with out.block(f"if {count}:"):
                with out.block(f"if {count} > 127:"):
                    out.line(f"{count}, pos = finish_uvarint(buf, pos, {count})")
                self.count(count)
                if not node.tagged:
                    out.line(f"pos = skip_tags(buf, pos, {count}, end)")
                else:
                    with out.block(f"for _ in range({count}):"):
                        self.one_tag(node, name)

    def one_tag(self, node: Version, name: str) -> None:
        out = self.out
        tag, size, outer = out.fresh("g"), out.fresh("s"), out.fresh("e")
        out.line(f"{tag}, pos = read_uvarint(buf, pos)")
        out.line(f"{size}, pos = read_uvarint(buf, pos)")
        with out.block(f"if {size} > end - pos:"):
            out.line(f"raise bad_size({size}, end - pos)")
        out.line(f"{outer} = end")
        out.line(f"end = {size} = pos + {size}")
        for order, (number, field) in enumerate(sorted(node.tagged.items())):
            with (
                out.block(f"{'elif' if order else 'if'} {tag} == {number}:"),
                out.inside(field.name),
            ):
                self.value(node.tagged_subcons[number], f"{name}.{field.name}")
                self.flush()
                with out.block(f"if pos != {size}:"):
                    out.line(f'raise WireError(f"tagged field ends {{{size} - pos}} bytes early")')
        with out.block("else:"):
            out.line(f"pos = {size}")
        out.line(f"end = {outer}")


def make_decoder(
    title: str, root: Version, max_elements: int = MAX_REQUEST_ELEMENTS
) -> Callable[[memoryview, int], tuple[Any, int]]:
    return Decoder(title, root, max_elements).build()
