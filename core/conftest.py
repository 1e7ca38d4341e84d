"""An error of the device has no time to pass: tests say when it is gone."""

import pytest

from kumquat.core.logs.disk import unreadable


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "_PAUSES_SECONDS", (0.0, 0.0))
