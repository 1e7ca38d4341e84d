"""The reference codec: one version of a message as an ordinary `construct.Struct`.

`specialise(structure, version, flexible)` drops the fields that the version lacks, makes strings,
byte strings and arrays compact or plain, and gives every struct of a flexible version its section
of tagged fields. What comes out parses and builds with construct's own machinery and error paths;
it is what tests and inspection tools use, and it is the tree that decoder.py and encoder.py turn
into the flat functions that run. Interpreting it costs thirty to ninety times as much.

Parsing gives a Container; building takes a mapping or one of our message objects. A field missing
from a mapping has its default. The rules, which the generated code shares and tests hold it to:

- null is -1 (plain) or 0 (compact), and only where the field is nullable; no other negative length;
- a string has at most 32767 bytes; a length or a count never goes past the end of the input;
- a nullable struct begins with a byte: 1 when it is there, -1 when it is null;
- known tags may come in any order and must fill their size exactly; unknown ones are skipped; they
  are written in the order of their numbers, and only when they differ from the default;
- a value that differs from the default, in a version that lacks its field, is refused unless the
  field is ignorable.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import construct as c  # type: ignore[import-untyped]

from kumquat.gateway.wire.errors import WireError
from kumquat.gateway.wire.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from kumquat.gateway.wire.declare import Field, Structure, Type

MAX_STRING = 0x7FFF

FIXED = {
    "bool": c.Flag,
    "int8": c.Int8sb,
    "int16": c.Int16sb,
    "int32": c.Int32sb,
    "int64": c.Int64sb,
    "uuid": c.Bytes(16),
}
# What each of these constructs is in the `struct` module; they are singletons, known by identity.
FORMATS = {
    id(FIXED[kind]): fmt for kind, fmt in zip(FIXED, ("?", "b", "h", "i", "q", "16s"), strict=True)
}


def write(stream: Any, raw: bytes, path: str) -> None:
    c.stream_write(stream, raw, len(raw), path)


class Unsigned(c.Construct):  # type: ignore[misc]
    """An unsigned varint."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        raw = b""
        while not raw or (raw[-1] > 127 and len(raw) < 5):
            raw += c.stream_read(stream, 1, path)
        try:
            return read_uvarint(memoryview(raw), 0)[0]
        except (WireError, IndexError) as failure:
            raise c.IntegerError(str(failure) or "varint too long", path=path) from failure

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        write(stream, uvarint(obj), path)
        return obj


UNSIGNED = Unsigned()


class Sized(c.Construct):  # type: ignore[misc]
    """What begins with a length or a count: compact (one more, as a varint) or a plain integer."""

    plain = c.Int32sb

    def __init__(self, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.compact = compact
        self.nullable = nullable

    def read_size(self, stream: Any, context: Any, path: str) -> int | None:
        if self.compact:
            size = UNSIGNED._parse(stream, context, path) - 1
        else:
            size = self.plain._parse(stream, context, path)
        if size == -1 and self.nullable:
            return None
        if size < 0:
            raise c.IntegerError("null, but not nullable" if size == -1 else "negative", path=path)
        if size > len(stream.getbuffer()) - stream.tell():
            raise c.StreamError(f"{size} announced, fewer bytes left", path=path)
        return int(size)

    def write_size(self, obj: Any, size: int, stream: Any, context: Any, path: str) -> None:
        if obj is None and not self.nullable:
            raise c.IntegerError("null, but not nullable", path=path)
        size = -1 if obj is None else size
        if self.compact:
            UNSIGNED._build(size + 1, stream, context, path)
        else:
            self.plain._build(size, stream, context, path)


class Text(Sized):
    """A string."""

    plain = c.Int16sb

    def _parse(self, stream: Any, context: Any, path: str) -> str | None:
        size = self.read_size(stream, context, path)
        if size is None:
            return None
        if size > MAX_STRING:
            raise c.StringError("string too long", path=path)
        try:
            return str(c.stream_read(stream, size, path), "utf-8")
        except UnicodeDecodeError as failure:
            raise c.StringError(str(failure), path=path) from failure

    def _build(self, obj: str | None, stream: Any, context: Any, path: str) -> str | None:
        raw = b"" if obj is None else obj.encode()
        if len(raw) > MAX_STRING:
            raise c.StringError("string too long", path=path)
        self.write_size(obj, len(raw), stream, context, path)
        write(stream, raw, path)
        return obj


class Blob(Sized):
    """Bytes. `view` marks record batches, which the generated decoder gives out without a copy."""

    def __init__(self, compact: bool, nullable: bool, view: bool) -> None:
        super().__init__(compact, nullable)
        self.view = view

    def _parse(self, stream: Any, context: Any, path: str) -> bytes | None:
        size = self.read_size(stream, context, path)
        return None if size is None else bytes(c.stream_read(stream, size, path))

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        raw = b"".join(obj) if isinstance(obj, list) else bytes(obj or b"")
        self.write_size(obj, len(raw), stream, context, path)
        write(stream, raw, path)
        return obj


class Many(Sized):
    """An array; `element` is the construct of one of its elements."""

    def __init__(self, compact: bool, nullable: bool, element: Any) -> None:
        super().__init__(compact, nullable)
        self.element = element

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self.read_size(stream, context, path)
        if count is None:
            return None
        return c.ListContainer(
            self.element._parsereport(stream, context, f"{path}[{i}]") for i in range(count)
        )

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self.write_size(obj, len(obj or ()), stream, context, path)
        for i, item in enumerate(obj or ()):
            self.element._build(item, stream, context, f"{path}[{i}]")
        return obj


class Perhaps(c.Subconstruct):  # type: ignore[misc]
    """A nullable struct."""

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        mark = c.Int8sb._parse(stream, context, path)
        if mark not in (-1, 1):
            raise c.IntegerError(f"{mark} is neither null nor present", path=path)
        return None if mark == -1 else self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        c.Int8sb._build(-1 if obj is None else 1, stream, context, path)
        return obj if obj is None else self.subcon._build(obj, stream, context, path)


class Version(c.Struct):  # type: ignore[misc]
    """One version of a struct: its untagged fields in order, then the section of tagged ones."""

    def __init__(self, structure: Structure, version: int, flexible: bool) -> None:
        self.structure = structure
        self.version = version
        self.flexible = flexible
        here = [field for field in structure.fields if field.type.present(version)]
        self.absent = [field for field in structure.fields if not field.type.present(version)]
        self.plain = [field for field in here if field.type.tag is None]
        self.tagged = {field.type.tag: field for field in here if field.type.tag is not None}
        if self.tagged and not flexible:
            raise ValueError(f"{structure.name} v{version}: tagged fields need a flexible version")
        self.tagged_subcons = {tag: self.node(field) for tag, field in self.tagged.items()}
        super().__init__(*(field.name / self.node(field) for field in self.plain))

    def node(self, field: Field) -> Any:
        nullable = field.type.null_allowed(self.version)
        return specialise_type(field.type, self.version, self.flexible, nullable)

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        obj = super()._parse(stream, context, path)
        for field in (*self.tagged.values(), *self.absent):
            obj[field.name] = field.type.default_value()
        if self.flexible:
            for _ in range(UNSIGNED._parse(stream, context, path)):
                self._parse_tag(obj, stream, context, path)
        return obj

    def _parse_tag(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        tag = UNSIGNED._parse(stream, context, path)
        size = UNSIGNED._parse(stream, context, path)
        raw = BytesIO(c.stream_read(stream, size, path))
        if tag in self.tagged:
            name = self.tagged[tag].name
            obj[name] = self.tagged_subcons[tag]._parsereport(raw, context, f"{path} -> {name}")
            if raw.tell() != size:
                raise c.StreamError("tagged field is shorter than its size", path=path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        fields = self.structure.fields
        if isinstance(obj, dict):
            values = {f.name: obj.get(f.name, f.type.default_value()) for f in fields}
        else:
            values = {f.name: getattr(obj, f.name) for f in fields}
        for field in self.absent:
            unusual = values[field.name] != field.type.default_value()
            if unusual and not field.type.is_ignorable:
                raise c.CheckError(f"{field.name} is not in version {self.version}", path=path)
        super()._build(values, stream, context, path)
        if self.flexible:
            self._build_tags(values, stream, context, path)
        return obj

    def _build_tags(self, values: dict[str, Any], stream: Any, context: Any, path: str) -> None:
        given = [
            tag
            for tag, field in sorted(self.tagged.items())
            if values[field.name] != field.type.default_value()
        ]
        UNSIGNED._build(len(given), stream, context, path)
        for tag in given:
            raw = BytesIO()
            self.tagged_subcons[tag]._build(values[self.tagged[tag].name], raw, context, path)
            UNSIGNED._build(tag, stream, context, path)
            UNSIGNED._build(len(raw.getvalue()), stream, context, path)
            write(stream, raw.getvalue(), path)


def specialise(structure: Structure, version: int, flexible: bool) -> Version:
    """The construct of `structure` in one version."""
    return Version(structure, version, flexible)


def specialise_type(type_: Type, version: int, flexible: bool, nullable: bool) -> Any:
    if type_.structure is not None:
        inner = Version(type_.structure, version, flexible)
        return Perhaps(inner) if nullable else inner
    if type_.kind == "string":
        return Text(flexible, nullable)
    if type_.kind in ("bytes", "records"):
        return Blob(flexible, nullable, view=type_.kind == "records")
    if type_.element is not None:
        element = specialise_type(type_.element, version, flexible, nullable=False)
        return Many(flexible, nullable, element)
    return FIXED[type_.kind]
