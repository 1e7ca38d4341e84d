"""One broker for the tests of a folder, for its conftest.py to import; each test has topics of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.testing.broker import broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.gateway.testing.broker import TestBroker


@pytest.fixture(scope="package")
def running() -> Iterator[TestBroker]:
    with broker() as made:
        yield made


@pytest.fixture
def at(running: TestBroker) -> tuple[str, str]:
    """Where it is, as arguments."""
    return ("--bootstrap", running.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    kept = [c if c.isalnum() else "." for c in request.node.name]
    return "".join(kept)[:200]
