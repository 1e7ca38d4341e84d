"""The language in which messages are declared: name over type, once for all versions.

    "session_id" / int32.since(7)
    "rack"       / string.since(1).nullable().default(None)
    "topics"     / array("FetchTopic", "topic" / string.until(12), …).since(4)
    "cluster_id" / string.nullable().default(None).tagged(0, since=12)

A `Type` is immutable; each modifier gives a changed copy, and `"name" / type` gives a `Field`.
Versions are inclusive at both ends. Rules that follow Kafka's own schema language:

- a field without a default has its kind's: 0, False, "", b"", sixteen zero bytes, []; for records
  it is None;
- `nullable(since)` counts from the field's first version when no version is given;
- a tagged field is tagged in all versions that have it. A tagged struct that is absent is None;
- `ignorable()` marks a field whose value may be dropped silently by versions that lack it.

Nothing here knows bytes: compact or plain is a matter of the version, decided in reference.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

FOREVER = 0x7FFF
ZERO_UUID = bytes(16)

_KIND_DEFAULTS: dict[str, object] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
}
_UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Type:
    """What a field holds, in which versions, and how it may be left out."""

    kind: str
    element: Type | None = None
    structure: Structure | None = None
    first: int = 0
    last: int = FOREVER
    null_from: int | None = None
    tag: int | None = None
    is_ignorable: bool = False
    given_default: Any = _UNSET

    def since(self, version: int) -> Type:
        return replace(self, first=version)

    def until(self, version: int) -> Type:
        return replace(self, last=version)

    def nullable(self, since: int = 0) -> Type:
        return replace(self, null_from=since)

    def default(self, value: object) -> Type:
        return replace(self, given_default=value)

    def tagged(self, tag: int, since: int = 0) -> Type:
        return replace(self, tag=tag, first=since)

    def ignorable(self) -> Type:
        return replace(self, is_ignorable=True)

    def __rtruediv__(self, name: str) -> Field:
        return Field(name, self)

    def present(self, version: int) -> bool:
        return self.first <= version <= self.last

    def null_allowed(self, version: int) -> bool:
        return self.null_from is not None and version >= self.null_from

    def default_value(self) -> Any:
        """The default; for a list or a struct a fresh one each time."""
        if self.given_default is not _UNSET:
            return self.given_default
        if self.kind == "array":
            return []
        if self.structure is not None:
            return None if self.tag is not None else self.structure.cls()
        return _KIND_DEFAULTS[self.kind]

    @property
    def default_is_fresh(self) -> bool:
        """True when the default is mutable, so that no two messages may share it."""
        return self.given_default is _UNSET and (
            self.kind == "array" or (self.kind == "struct" and self.tag is None)
        )


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Type


@dataclass(slots=True, eq=False)
class Structure:
    """A named group of fields; `cls` is its Python class, made when its message is declared."""

    name: str
    fields: tuple[Field, ...]
    cls: Any = field(default=None, repr=False)


bool_ = Type("bool")
int8 = Type("int8")
int16 = Type("int16")
int32 = Type("int32")
int64 = Type("int64")
string = Type("string")
bytes_ = Type("bytes")
records = Type("records")
uuid = Type("uuid")


def struct(name: str, *fields: Field) -> Type:
    """A nested struct. Used for two fields, it gives both the same Python class."""
    return Type("struct", structure=Structure(name, fields))


def array(element: Type | str, *fields: Field) -> Type:
    """`array(int32)`, `array(a_struct)`, or a new struct in place: `array("Name", *fields)`."""
    return Type("array", element=struct(element, *fields) if isinstance(element, str) else element)
