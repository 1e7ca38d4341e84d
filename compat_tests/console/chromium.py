"""The system's Chromium, and a tab of it that notices what must not happen.

    with tab(chromium, broker.admin) as page:      # wide; tab(…, narrow=True): a phone
        page.goto("/console/groups")

When a tab is closed, it has seen no error in its console, no request to anybody but the broker, no answer
of the server's failing, and no page that is wider than its window. What a test provokes on purpose it says
with `expects`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

NAMES = ("chromium", "chromium-browser")
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
LONGEST_FOLDER = 60
PATIENCE_MS = 60_000
"""Playwright waits so long for what is to appear. Speed is never judged."""


@contextmanager
def started() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium: install the package `chromium` (apt-get install chromium)")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=ARGUMENTS, env={**os.environ, "TMPDIR": _short_folder()}
        )
        yield browser
        browser.close()


def _short_folder() -> str:
    """Chromium makes a socket in its temporary folder, and ends if the name is too long for one."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < LONGEST_FOLDER else "/tmp"


class Watch:
    """What went wrong in a tab."""

    def __init__(self, page: Page, own: str) -> None:
        self._own = own
        self.faults: list[str] = []
        self.policies: set[str | None] = set()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("request", self._request)
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith(f"{self._own}/"):
            self.faults.append(f"asked elsewhere: {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self.faults.append(f"{response.status}: {response.url}")
        self.policies.add(response.headers.get("content-security-policy"))


@contextmanager
def tab(
    browser: Browser,
    admin: str,
    *,
    narrow: bool = False,
    dark: bool = False,
    script: bool = True,
    expects: str = "",
) -> Iterator[Page]:
    context = browser.new_context(
        base_url=admin,
        viewport=NARROW if narrow else WIDE,  # type: ignore[arg-type]
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    watch = Watch(page, admin)
    yield page
    if script:
        fits(page)
    context.close()
    faults = [fault for fault in watch.faults if not expects or expects not in fault]
    assert not faults, faults
    assert all(policy and "unsafe" not in policy for policy in watch.policies), watch.policies


def fits(page: Page) -> None:
    """The page is not wider than its window."""
    width, window = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= window, f"{page.url} is {width} wide in a window of {window}"
