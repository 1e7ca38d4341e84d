"""A broker with something of everything on it, and the browser; see stage.py and chromium.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.conftest import GROUPS
from compat_tests.console import chromium as chromium_
from compat_tests.console.stage import Stage
from compat_tests.members.fixture import Members
from kumquat.testing import broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

    from compat_tests.members.fixture import Hosts

PICTURES = Path(__file__).parents[2] / "docs" / "console"


@pytest.fixture(scope="module")
def chromium(pytestconfig: pytest.Config) -> Iterator[Browser]:
    """No longer than a module: while it is there, an asyncio loop runs, and nobody else can run one."""
    if pytestconfig.getoption("--broker") != "kumquat":
        pytest.skip("only Kumquat has the console")
    with chromium_.started() as browser:
        yield browser


@pytest.fixture(scope="module")
def stage(chromium: Browser) -> Iterator[Stage]:
    options: dict[str, Any] = {name.replace(".", "_"): value for name, value in GROUPS.items()}
    with broker(**options) as running:
        yield Stage(running)


@pytest.fixture
def workers(stage: Stage, hosts: Hosts) -> Iterator[Members]:
    made = Members(stage.bootstrap, hosts)
    yield made
    made.close()


@pytest.fixture
def picture(pytestconfig: pytest.Config) -> Callable[[Page, str], None]:
    """Keeps a picture of a page in docs/console, with --screenshots."""

    def keep(page: Page, name: str) -> None:
        if pytestconfig.getoption("--screenshots"):
            PICTURES.mkdir(exist_ok=True)
            page.screenshot(path=PICTURES / f"{name}.png")

    return keep
