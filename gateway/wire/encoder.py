"""Writes the flat encoder of one version of a message: `encode(message) -> [buffer, …]`.

It walks the reference construct, as the decoder does. `parts` collects the pieces, joined once at
the end. Record batches are never copied: at each, what was collected so far is joined and put out,
and then the caller's own buffers follow as they are, ready for one scatter-gather send.

- adjacent fixed fields are one `pack`; the length, count or empty tag section after them is in it
  ("B" when it takes one byte, and "x" for a tag section that is always empty);
- an array may be given as `Encoded`: elements that were encoded before, for this same version. They may
  be many megabytes, and are not copied either;
- a value that the version has no field for must be the default, unless the field is ignorable;
- an error message that is very long is cut: it may quote names of any length.
"""

from __future__ import annotations

from contextlib import contextmanager
from struct import pack
from typing import TYPE_CHECKING, Any

from kumquat.gateway.wire.code_writer import CodeWriter, run_path
from kumquat.gateway.wire.declare import ZERO_UUID
from kumquat.gateway.wire.decoder import ARRAY_FORMATS
from kumquat.gateway.wire.errors import WireError
from kumquat.gateway.wire.reference import FORMATS, MAX_STRING, Blob, Many, Perhaps, Text, Version
from kumquat.gateway.wire.varint import ONE_BYTE, uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kumquat.gateway.wire.declare import Field

FREE_TEXT = "error_message"
"""How the names of fields end that are written for people."""
MAX_TEXT = 4096
"""Bytes."""


class Encoded:
    """Elements of an array, already encoded for the version that will be sent; any number of them in
    each payload."""

    __slots__ = ("count", "payloads")

    def __init__(self, count: int, *payloads: bytes) -> None:
        self.count = count
        self.payloads = payloads

    def __len__(self) -> int:
        return self.count


def differs(field: Field, expression: str) -> str:
    """An expression that is true when the value is not the field's default."""
    default = field.type.default_value()
    if default is None:
        return f"{expression} is not None"
    if default is False or (isinstance(default, (list, str, bytes)) and not default):
        return (
            f"{expression} or {expression} is None"
            if field.type.null_from is not None
            else expression
        )
    if default is True:
        return f"not {expression}"
    if default == ZERO_UUID:
        return f"{expression} != ZERO_UUID"
    return f"{expression} != {default!r}"


def cut_text(text: bytes) -> bytes:
    """The beginning of a text that is too long."""
    return text[: MAX_TEXT - 3].decode(errors="ignore").encode() + "…".encode()


class Encoder:
    """Emits the code; `pending` are the fixed-size items written by the next pack."""

    def __init__(self, title: str, root: Version) -> None:
        self.root = root
        self.out = CodeWriter(title, "def encode(m):")
        self.pending: list[tuple[str, str, str]] = []
        for value in (uvarint, pack, cut_text, WireError, Encoded):
            self.out.constant(value.__name__, value)
        self.out.constant("ONE_BYTE", ONE_BYTE)
        self.out.constant("ZERO_UUID", ZERO_UUID)

    def build(self) -> Callable[[Any], list[bytes | memoryview]]:
        out = self.out
        out.line("parts = []")
        out.line("whole = True")
        scattered = holds_records(self.root)
        if scattered:
            out.line("buffers = []")
        self.structure(self.root, "m")
        self.flush()
        if scattered:
            with out.block("if parts:"):
                out.line('buffers.append(b"".join(parts))')
            out.line("return buffers")
        else:
            out.line('return [b"".join(parts)] if whole else parts')
        return out.compile("encode", "None")

    # -- fixed-size items --------------------------------------------------------------------

    def put(self, fmt: str, expression: str = "") -> None:
        self.pending.append((fmt, expression, ".".join(self.out.path)))

    def flush(self, extra: str = "", expression: str = "", keep: bool = False) -> None:
        items = self.pending
        if extra:
            items = [*items, (extra, expression, ".".join(self.out.path))]
        if items:
            formats = "".join(fmt for fmt, _, _ in items)
            values = ", ".join(value for _, value, _ in items if value)
            path = run_path([path for _, _, path in items])
            if formats.strip("x") == "":
                self.out.line(f"parts.append({bytes(len(formats))!r})")
            else:
                self.out.line(f"parts.append({self.out.packer(formats)}({values}))", path)
        if not keep:
            self.pending = []

    def size(self, node: Text | Blob | Many, n: str) -> None:
        """Write a length or count, which for a compact one must be one more already."""
        if not node.compact:
            self.put("h" if isinstance(node, Text) else "i", n)
            self.flush()
        elif self.pending:
            with self.out.block(f"if {n} < 128:"):
                self.flush("B", n, keep=True)
            if isinstance(node, Blob) and node.view:
                with self.out.block(f"elif {n} < 16384:"):
                    self.flush("BB", f"{n} & 127 | 128, {n} >> 7", keep=True)
            with self.out.block("else:"):
                self.flush()
                self.out.line(f"parts.append(uvarint({n}))")
        else:
            self.out.line(f"parts.append(ONE_BYTE[{n}] if {n} < 128 else uvarint({n}))")

    # -- values ------------------------------------------------------------------------------

    def structure(self, node: Version, name: str) -> None:
        for field in node.absent:
            if not field.type.is_ignorable:
                with (
                    self.out.inside(field.name),
                    self.out.block(f"if {differs(field, f'{name}.{field.name}')}:"),
                ):
                    self.out.line('raise WireError("this version has no such field")')
        for field, sub in zip(node.plain, node.subcons, strict=True):
            with self.out.inside(field.name):
                self.value(sub.subcon, f"{name}.{field.name}")
        if node.flexible:
            self.tags(node, name)

    def value(self, node: Any, expression: str) -> None:
        if isinstance(node, Text):
            self.text(node, expression)
        elif isinstance(node, Blob):
            self.records(node, expression) if node.view else self.blob(node, expression)
        elif isinstance(node, Many):
            self.array(node, expression)
        elif isinstance(node, Perhaps):
            self.perhaps(node, expression)
        elif isinstance(node, Version):
            name = self.out.fresh("m")
            self.out.line(f"{name} = {expression}")
            self.structure(node, name)
        else:
            fmt = FORMATS[id(node)]
            if fmt == "16s":
                # struct would pad or cut a wrong length silently.
                with self.out.block(f"if len({expression}) != 16:"):
                    self.out.line('raise WireError("a uuid has sixteen bytes")')
            self.put(fmt, expression)

    @contextmanager
    def null_apart(self, node: Text | Blob | Many, value: str) -> Iterator[None]:
        """Write null; the code within is for a value that is there.

        Where null is not allowed it fails by itself, having neither a length nor `encode`.
        """
        if not node.nullable:
            yield
            return
        fmt = "B" if node.compact else "h" if isinstance(node, Text) else "i"
        with self.out.block(f"if {value} is None:"):
            self.flush(fmt, "0" if node.compact else "-1", keep=True)
        with self.out.block("else:"):
            yield

    def text(self, node: Text, expression: str) -> None:
        out = self.out
        s, n = out.fresh("s"), out.fresh("n")
        out.line(f"{s} = {expression}")
        with self.null_apart(node, s):
            out.line(f"{s} = {s}.encode()")
            if out.path[-1].endswith(FREE_TEXT):
                with out.block(f"if len({s}) > {MAX_TEXT}:"):
                    out.line(f"{s} = cut_text({s})")
            out.line(f"{n} = len({s}){' + 1' if node.compact else ''}")
            if node.compact:
                with out.block(f"if {n} > {MAX_STRING + 1}:"):
                    out.line(f'raise WireError(f"string of {{{n} - 1}} bytes")')
            self.size(node, n)
            out.line(f"parts.append({s})")

    def blob(self, node: Blob, expression: str) -> None:
        out = self.out
        s, n = out.fresh("s"), out.fresh("n")
        out.line(f"{s} = {expression}")
        with self.null_apart(node, s):
            out.line(f"{n} = len({s}){' + 1' if node.compact else ''}")
            self.size(node, n)
            out.line(f"parts.append({s})")

    def records(self, node: Blob, expression: str) -> None:
        out = self.out
        s, n = out.fresh("s"), out.fresh("n")
        more = " + 1" if node.compact else ""
        out.line(f"{s} = {expression}")
        with self.null_apart(node, s):
            with out.block(f"if {s}.__class__ is list:"):
                out.line(f"{n} = sum(map(len, {s})){more}")
            with out.block("else:"):
                out.line(f"{n} = len({s}){more}")
                out.line(f"{s} = ({s},)")
            self.size(node, n)
            with out.block(f"if {n} > {int(node.compact)}:"):
                out.line('buffers.append(b"".join(parts))')
                out.line("parts = []")
                out.line(f"buffers += {s}")

    def array(self, node: Many, expression: str) -> None:
        out = self.out
        a, n = out.fresh("a"), out.fresh("n")
        out.line(f"{a} = {expression}")
        with self.null_apart(node, a):
            out.line(f"{n} = len({a}){' + 1' if node.compact else ''}")
            self.size(node, n)
            self.elements(node, a)

    def elements(self, node: Many, a: str) -> None:
        out = self.out
        fmt = FORMATS.get(id(node.element))
        if fmt in ARRAY_FORMATS:
            with out.block(f"if {a}:"):
                out.line(f'parts.append(pack(f">{{len({a})}}{fmt}", *{a}))')
            return
        with out.block(f"if {a}.__class__ is Encoded:"):
            out.line(f"parts += {a}.payloads")
            out.line("whole = False")
        item = out.fresh("m")
        with out.block("else:"), out.block(f"for {item} in {a}:"):
            out.path[-1] += "[]"
            if isinstance(node.element, Version):
                self.structure(node.element, item)
            else:
                self.value(node.element, item)
            self.flush()

    def perhaps(self, node: Perhaps, expression: str) -> None:
        out = self.out
        name = out.fresh("m")
        self.flush()
        out.line(f"{name} = {expression}")
        with out.block(f"if {name} is None:"):
            out.line('parts.append(b"\\xff")')
        with out.block("else:"):
            out.line('parts.append(b"\\x01")')
            self.structure(node.subcon, name)
            self.flush()

    # -- tagged fields -----------------------------------------------------------------------

    def tags(self, node: Version, name: str) -> None:
        out = self.out
        if not node.tagged:
            self.put("x")
            return
        self.flush()
        fields = sorted(node.tagged.items())
        unusual = " or ".join(differs(field, f"{name}.{field.name}") for _, field in fields)
        with out.block(f"if {unusual}:"):
            outer, count, tagged = out.fresh("o"), out.fresh("t"), out.fresh("g")
            out.line(f"{outer} = parts; {tagged} = []; {count} = 0")
            for tag, field in fields:
                with (
                    out.inside(field.name),
                    out.block(f"if {differs(field, f'{name}.{field.name}')}:"),
                ):
                    out.line("parts = []")
                    self.value(node.tagged_subcons[tag], f"{name}.{field.name}")
                    self.flush()
                    out.line('parts = b"".join(parts)')
                    out.line(f"{tagged} += (uvarint({tag}), uvarint(len(parts)), parts)")
                    out.line(f"{count} += 1")
            out.line(f"parts = {outer}")
            out.line(f"parts.append(uvarint({count}))")
            out.line(f"parts += {tagged}")
        with out.block("else:"):
            out.line('parts.append(b"\\x00")')


def holds_records(node: Any) -> bool:
    if isinstance(node, Version):
        return any(holds_records(sub.subcon) for sub in node.subcons)
    if isinstance(node, Many):
        return holds_records(node.element)
    return isinstance(node, Blob) and node.view


def make_encoder(title: str, root: Version) -> Callable[[Any], list[bytes | memoryview]]:
    return Encoder(title, root).build()
