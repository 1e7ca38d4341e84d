"""What the tests of the delay service share."""

from pathlib import Path

import pytest

from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.tests.delays import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(FakeFiles(tmp_path))
