"""The pytest fixture `kumquat`: a real broker for one test. `kumquat.testing` says how to use it.

pytest loads this file in every run on a machine that has Kumquat installed. So it imports the broker's
modules only when a test uses the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.gateway.testing.broker import TestBroker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kumquat(**options): options of the broker behind the fixture `kumquat`"
    )


@pytest.fixture
def kumquat(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A running Kumquat broker: `kumquat.bootstrap` is where clients connect."""
    from kumquat.gateway.testing.broker import broker

    marker = request.node.get_closest_marker("kumquat")
    with broker(**(marker.kwargs if marker else {})) as running:
        yield running
