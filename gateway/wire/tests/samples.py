"""Messages to test with, the same in every run, and their shapes in the other two codecs.

`samples(message, version)` gives messages that only hold what that version can carry: one bare (all
empty, null, default), one full (nothing null, every tag set), and some mixed at random from a fixed
seed. Values sit on the borders: both ends of each integer, strings around the length where a varint
grows to two bytes, text outside ASCII.

kafka-python's codec takes and gives dicts with uuid.UUID in them, and None for the zero uuid;
construct gives Containers. `to_kafka`, `from_plain` translate.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

from kumquat.gateway.wire.declare import ZERO_UUID
from kumquat.gateway.wire.message import Message, Struct
from kumquat.gateway.wire.stubs import classes, schema_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.gateway.wire.declare import Field, Structure, Type

MESSAGES = [
    cls for module in schema_modules() for cls in classes(module) if issubclass(cls, Message)
]
CASES = [(message, version) for message in MESSAGES for version in message.valid_versions]
IDS = [f"{message.__name__}-{version}" for message, version in CASES]

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "a", "orders", "ключ-µ-鍵", "x" * 126, "y" * 127, "z" * 128, "w" * 300)


def samples(message: type[Message], version: int, mixed: int = 3) -> Iterator[Message]:
    rng = random.Random(f"{message.__name__} {version}")
    for richness in (0.0, 1.0, *[0.6] * mixed):
        made = _structure(message.structure, version, rng, richness)
        assert isinstance(made, Message)
        yield made


def _structure(structure: Structure, version: int, rng: random.Random, richness: float) -> Struct:
    made: Struct = structure.cls()
    for field in structure.fields:
        if field.type.present(version):
            setattr(made, field.name, _value(field.type, version, rng, richness))
    return made


def _value(type_: Type, version: int, rng: random.Random, richness: float) -> Any:
    if rng.random() >= richness:
        if type_.null_allowed(version):
            return None
        if type_.structure is None or type_.tag is not None:
            return type_.default_value()
    if type_.element is not None:
        count = rng.choice((1, 2)) if richness == 1.0 else rng.choice((0, 1, 2, 3))
        return [_value(type_.element, version, rng, richness) for _ in range(count)]
    if type_.structure is not None:
        return _structure(type_.structure, version, rng, richness)
    return _scalar(type_.kind, rng)


def _scalar(kind: str, rng: random.Random) -> Any:
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "string":
        return rng.choice(TEXTS)
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 61, 126, 127, 128, 200)))
    if kind == "uuid":
        return rng.randbytes(16)
    top = 1 << (BITS[kind] - 1)
    return rng.choice((-top, -1, 0, 1, 7, top - 1, rng.randrange(-top, top)))


def to_kafka(made: Struct, version: int) -> dict[str, Any]:
    """The dict that kafka-python's codec builds this struct from."""
    fields = [field for field in made.structure.fields if field.type.present(version)]
    fields.sort(key=lambda field: -1 if field.type.tag is None else field.type.tag)
    values = {field.name: getattr(made, field.name) for field in fields}
    return {
        field.name: _plain_value(values[field.name], version)
        for field in fields
        if field.type.tag is None or values[field.name] != field.type.default_value()
    }


def _plain_value(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_plain_value(item, version) for item in value]
    if isinstance(value, Struct):
        return to_kafka(value, version)
    return value


def uuids(structure: Structure, plain: dict[str, Any]) -> dict[str, Any]:
    """The same dict, with sixteen bytes turned into what kafka-python calls a uuid."""
    made = dict(plain)
    for field in structure.fields:
        value = made.get(field.name)
        inner = (field.type.element or field.type).structure
        if value is None:
            continue
        if field.type.kind == "uuid":
            made[field.name] = uuid.UUID(bytes=value)
        elif inner is not None:
            nested = [uuids(inner, item) for item in value] if isinstance(value, list) else None
            made[field.name] = uuids(inner, value) if nested is None else nested
    return made


def from_plain(structure: Structure, plain: dict[str, Any]) -> Struct:
    """Our message from a dict or a Container; what is missing has its default."""
    made: Struct = structure.cls()
    for field in structure.fields:
        if field.name in plain:
            setattr(made, field.name, _from_value(field, plain[field.name]))
    return made


def _from_value(field: Field, value: Any) -> Any:
    inner = (field.type.element or field.type).structure
    if field.type.kind == "uuid":
        if value is None:
            return ZERO_UUID
        return value.bytes if isinstance(value, uuid.UUID) else value
    if value is None:
        return None
    if field.type.element is not None:
        return [item if inner is None else from_plain(inner, item) for item in value]
    return value if inner is None else from_plain(inner, value)
