"""The typed stubs and the package's export list against the declarations they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kumquat.gateway.wire
from kumquat.gateway.wire import stubs

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.mark.parametrize(
    ("path", "text"), stubs.files().items(), ids=lambda value: getattr(value, "name", "")
)
def test_stub_is_out_of_date(path: Path, text: str) -> None:
    assert path.read_text() == text, "run: python -m kumquat.gateway.wire.stubs"


@pytest.mark.parametrize("module", stubs.schema_modules(), ids=lambda module: module.__name__)
def test_struct_stands_under_another_name(module: ModuleType) -> None:
    for cls in stubs.classes(module):
        assert getattr(module, cls.__name__) is cls
        assert getattr(kumquat.gateway.wire, cls.__name__) is cls
