"""Types of the message classes for mypy: a `.pyi` beside each schema module, and the export list.

The classes are made at run time, so a type checker cannot see their fields. This module writes what
it needs from the declarations themselves; a test fails when the files and the declarations differ.

    python -m kumquat.gateway.wire.stubs        # write them

A field that may be null in some version is optional. Constructors take more than attributes give:
arrays of structs may be given as `Encoded`, and records as bytes, a view or a list of them, while
what was decoded always is a list, or a view.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

import kumquat.gateway.wire.schema
from kumquat.gateway.wire.message import Message, Struct

if TYPE_CHECKING:
    from types import ModuleType

    from kumquat.gateway.wire.declare import Type

WIRE = Path(__file__).parent
SIMPLE = {"bool": "bool", "string": "str", "bytes": "bytes", "uuid": "bytes"}
RECORDS = "bytes | memoryview | list[bytes | memoryview]"
WRITTEN = (
    "# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.\n"
)


def schema_modules() -> list[ModuleType]:
    names = sorted(info.name for info in pkgutil.iter_modules(kumquat.gateway.wire.schema.__path__))
    return [importlib.import_module(f"kumquat.gateway.wire.schema.{name}") for name in names]


def classes(module: ModuleType) -> list[type[Struct]]:
    """The messages and structs that a schema module declares, structs before their message."""
    found: list[type[Struct]] = []
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Message) and value is not Message:
            found += [*reversed(value.structs), value]
    return found


def annotation(type_: Type, given: bool) -> str:
    """The type of an attribute, or, when `given`, of the constructor's parameter."""
    if type_.element is not None:
        text = f"list[{annotation(type_.element, given)}]"
        if given and type_.element.structure is not None:
            text += " | Encoded"
    elif type_.structure is not None:
        text = type_.structure.name
        if type_.tag is not None:
            return f"{text} | None"
    elif type_.kind == "records":
        text = RECORDS if given else "memoryview"
    else:
        text = SIMPLE.get(type_.kind, "int")
    return f"{text} | None" if type_.null_from is not None else text


def render_class(cls: type[Struct]) -> str:
    base = "Message" if issubclass(cls, Message) else "Struct"
    fields = cls.structure.fields
    lines = [f"class {cls.__name__}({base}):"]
    lines += [f"    {field.name}: {annotation(field.type, given=False)}" for field in fields]
    if fields:
        lines += ["    def __init__(", "        self,"]
        lines += [f"        {f.name}: {annotation(f.type, given=True)} = ...," for f in fields]
        lines += ["    ) -> None: ..."]
    else:
        lines += ["    def __init__(self) -> None: ..."]
    return "\n".join(lines) + "\n"


def render_stub(module: ModuleType) -> str:
    bodies = [render_class(cls) for cls in classes(module)]
    text = "\n".join(bodies)
    bases = [name for name in ("Message", "Struct") if f"({name}):" in text]
    imports = f"from kumquat.gateway.wire.message import {', '.join(bases)}\n"
    if "Encoded" in text:
        imports = "from kumquat.gateway.wire.encoder import Encoded\n" + imports
    return f"{WRITTEN}\n{imports}\n{text}"


def render_package() -> str:
    """`gateway/wire/__init__.py`: every class under its own name."""
    names = {"Encoded": "encoder", "ErrorCode": "codes", "WireError": "errors"}
    names |= {"Message": "message", "REQUESTS": "message", "RESPONSES": "message"}
    for module in schema_modules():
        for cls in classes(module):
            if cls.__name__ in names:
                raise TypeError(f"two classes are called {cls.__name__}")
            names[cls.__name__] = module.__name__.removeprefix("kumquat.gateway.wire.")
    text = f"{PACKAGE_DOC}\n{WRITTEN}# ruff: noqa: I001 (one group of names per module)\n\n"
    for source in sorted(set(names.values())):
        here = sorted(name for name, where in names.items() if where == source)
        text += f"from kumquat.gateway.wire.{source} import (\n"
        text += "".join(f"    {name} as {name},\n" for name in here)
        text += ")\n"
    return text


PACKAGE_DOC = '''"""Kafka's wire protocol: messages, codecs, frames. Imports nothing of ours.

- declare.py: the language of declarations, `"name" / int32.since(7)`
- schema/: Kafka's messages in it, one module per family of APIs, each with its .pyi
- message.py: the classes made from them; `FetchRequest[12]`, `decode`, `encode`
- reference.py: one version as a construct.Struct, the reference codec
- decoder.py, encoder.py, code_writer.py, varint.py: the flat codecs generated from that
- frame.py: sizes and headers
- errors.py, codes.py: WireError; Kafka's error codes
- stubs.py: writes the .pyi files and this one
"""
'''


def files() -> dict[Path, str]:
    """Every written file with what it should contain."""
    made = {WIRE / "__init__.py": render_package()}
    for module in schema_modules():
        made[Path(str(module.__file__)).with_suffix(".pyi")] = render_stub(module)
    return made


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
