"""Message classes, and where their codecs are kept.

`message("FetchRequest", key=1, versions=(4, 17), flexible=12)(*fields)` makes a slotted Python
class for the message and one for each struct within it: one class for all versions, every field
with a default, `==` and `repr` by value. `Message.structs` are the classes of the structs, in the
order of their declaration; schema modules give them module-level names.

    FetchRequest[12]                       the reference codec: a construct.Struct
    FetchRequest.decode(view, 12, pos)     (message, end)
    FetchResponse.encode(message, 12)      [buffer, …], the body only
    FetchRequest.decoder(12)               the bare function behind decode; encoder(12) likewise
    Struct.encode_element(value, 12)       one element of an array, for use in `Encoded`

Codecs are generated on first use and kept: a client uses one version of each API, and most versions
are never asked for. Constructors too are compiled on first use: there are two hundred classes, and
starting must stay quick. That is also why these are not `dataclasses`: each costs a millisecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from kumquat.gateway.wire.declare import Structure
from kumquat.gateway.wire.decoder import (
    MAX_ELEMENTS,
    MAX_PRODUCE_ELEMENTS,
    MAX_REQUEST_ELEMENTS,
    make_decoder,
)
from kumquat.gateway.wire.encoder import make_encoder
from kumquat.gateway.wire.errors import WireError
from kumquat.gateway.wire.reference import Version, specialise

if TYPE_CHECKING:
    from collections.abc import Callable

    from kumquat.gateway.wire.declare import Field, Type

# The request and the response class of each API key; filled by `message`.
REQUESTS: dict[int, type[Message]] = {}
RESPONSES: dict[int, type[Message]] = {}


class Struct:
    """Base of all messages and structs: slots, a constructor made on first use, value equality."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    structure: ClassVar[Structure]
    owner: ClassVar[type[Message]]
    element_encoders: ClassVar[dict[int, Callable[[Any], list[bytes | memoryview]]]]

    def __init__(self, *args: object, **kwargs: object) -> None:
        cls = type(self)
        cls.__init__ = _constructor(cls.structure)  # type: ignore[method-assign]
        cls.__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"

    @classmethod
    def encode_element(cls, value: Self, version: int) -> bytes:
        """The bytes of one element of an array of these, in that version of the message."""
        encode = cls.element_encoders.get(version)
        if encode is None:
            root = specialise(cls.structure, version, cls.owner.is_flexible(version))
            encode = make_encoder(f"{cls.owner.__name__} v{version}: {cls.__name__}", root)
            cls.element_encoders[version] = encode
        return b"".join(encode(value))


class MessageType(type):
    """Gives message classes `FetchRequest[12]`."""

    def __getitem__(cls, version: int) -> Any:
        return cls.reference(version)  # type: ignore[attr-defined]


class Message(Struct, metaclass=MessageType):
    """Base of all requests and responses (and of the data structures that travel inside them)."""

    __slots__ = ()
    api_key: ClassVar[int]
    valid_versions: ClassVar[range]
    flexible_from: ClassVar[int]
    structs: ClassVar[tuple[type[Struct], ...]]
    references: ClassVar[dict[int, Version]]
    decoders: ClassVar[dict[int, Callable[..., tuple[Any, int]]]]
    encoders: ClassVar[dict[int, Callable[[Any], list[bytes | memoryview]]]]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return version >= cls.flexible_from

    @classmethod
    def reference(cls, version: int) -> Version:
        """The construct of that version."""
        if version not in cls.references:
            if version not in cls.valid_versions:
                raise WireError(f"version {version} is not served", message=cls.__name__)
            flexible = cls.is_flexible(version)
            cls.references[version] = specialise(cls.structure, version, flexible)
        return cls.references[version]

    @classmethod
    def decoder(cls, version: int) -> Callable[..., tuple[Self, int]]:
        """`decode(view, pos=0) -> (message, end)` for that version."""
        decode = cls.decoders.get(version)
        if decode is None:
            most = _most_elements(cls.__name__)
            decode = make_decoder(f"{cls.__name__} v{version}", cls.reference(version), most)
            cls.decoders[version] = decode
        return decode

    @classmethod
    def encoder(cls, version: int) -> Callable[[Self], list[bytes | memoryview]]:
        """`encode(message) -> buffers` for that version."""
        encode = cls.encoders.get(version)
        if encode is None:
            encode = make_encoder(f"{cls.__name__} v{version}", cls.reference(version))
            cls.encoders[version] = encode
        return encode

    @classmethod
    def decode(
        cls, view: bytes | bytearray | memoryview, version: int, pos: int = 0
    ) -> tuple[Self, int]:
        return cls.decoder(version)(view, pos)

    @classmethod
    def encode(cls, message: Self, version: int) -> list[bytes | memoryview]:
        return cls.encoder(version)(message)


def _most_elements(name: str) -> int:
    if name.endswith("Response"):
        return MAX_ELEMENTS
    return MAX_PRODUCE_ELEMENTS if name == "ProduceRequest" else MAX_REQUEST_ELEMENTS


def message(
    name: str,
    *,
    key: int,
    versions: tuple[int, int],
    flexible: int | None,
) -> Callable[..., type[Message]]:
    """Declare a message; `versions` are the first and the last, `flexible` the first flexible one."""
    valid = range(versions[0], versions[1] + 1)

    def declare(*fields: Field) -> type[Message]:
        structure = Structure(name, fields)
        inner: list[Structure] = []
        _collect(fields, inner)
        for nested in inner:
            nested.cls = _make_class(nested, Struct, element_encoders={})
        made: type[Message] = _make_class(
            structure,
            Message,
            api_key=key,
            valid_versions=valid,
            flexible_from=0x7FFF if flexible is None else flexible,
            structs=tuple(nested.cls for nested in inner),
            references={},
            decoders={},
            encoders={},
        )
        structure.cls = made
        for nested in inner:
            nested.cls.owner = made
        if name.endswith("Request"):
            REQUESTS[key] = made
        elif name.endswith("Response"):
            RESPONSES[key] = made
        return made

    return declare


def _collect(fields: tuple[Field, ...], into: list[Structure]) -> None:
    for field in fields:
        type_: Type = field.type.element or field.type
        if type_.structure is not None and type_.structure not in into:
            into.append(type_.structure)
            _collect(type_.structure.fields, into)


def _make_class(structure: Structure, base: type[Struct], **attributes: object) -> Any:
    names = tuple(field.name for field in structure.fields)
    for name in names:
        if hasattr(base, name):
            raise TypeError(f"{structure.name}.{name} would hide an attribute of {base.__name__}")
    namespace = {"__slots__": names, "structure": structure, **attributes}
    meta: Any = type(base)
    return meta(structure.name, (base,), namespace)


def _constructor(structure: Structure) -> Callable[..., None]:
    """`__init__` with every field as a parameter; mutable defaults are made for each call."""
    parameters = ["self"]
    body = []
    defaults: dict[str, Any] = {"FRESH": FRESH}
    for field in structure.fields:
        name = field.name
        if field.type.default_is_fresh:
            fresh = "[]"
            if field.type.structure is not None:
                fresh = f"{field.type.structure.name}()"
                defaults[field.type.structure.name] = field.type.structure.cls
            parameters.append(f"{name}=FRESH")
            body.append(f"    self.{name} = {fresh} if {name} is FRESH else {name}")
        else:
            parameters.append(f"{name}={field.type.default_value()!r}")
            body.append(f"    self.{name} = {name}")
    text = f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or "    pass")
    exec(text, defaults)
    made: Callable[..., None] = defaults["__init__"]
    return made


class _Fresh:
    """Stands for a default that is made again for each message."""


FRESH = _Fresh()
