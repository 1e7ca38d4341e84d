"""Pictures of the console in docs/console that nobody can make again.

`pytest compat_tests/console/test_pictures.py --screenshots` keeps them; without that they are only tried.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compat_tests.console.chromium import tab
from compat_tests.console.stage import polling

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

    from compat_tests.console.stage import Stage

pytestmark = pytest.mark.long  # plots need some time to be plots
SAMPLES = 7


def test_the_pictures_of_the_docs_cannot_be_made(
    chromium: Browser, stage: Stage, picture: Callable[[Page, str], None]
) -> None:
    stage.everything()
    numbers = itertools.count()
    with ExitStack() as clients:
        producer = clients.enter_context(closing(stage.producer(client_id="shop")))
        settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 700}
        busy = clients.enter_context(closing(stage.consumer("shipments", "warehouse", **settings)))
        forgetful = clients.enter_context(closing(stage.consumer("orders", "notifications")))

        def work() -> None:
            number = next(numbers)
            for _ in range(5 + 4 * (number // 20 % 3)):
                producer.send("shipments", b"shipment %d" % number)
            busy.poll(60)
            forgetful.poll(20)

        with polling(work):
            with tab(chromium, stage.admin) as page:
                page.goto("/")
                expect(page.locator("#troubles")).to_contain_text("Missing commit")
                page.wait_for_function(
                    "n => document.querySelector('#tiles polyline')?.points.length >= n",
                    arg=SAMPLES,
                )
                picture(page, "overview")
                page.get_by_role("link", name="notifications").first.click()
                expect(page.locator("[data-cause='missing commit']")).to_be_visible()
                picture(page, "group")
                page.goto("/console/messages?subject=orders")
                expect(page.locator("#live")).to_have_class("live on")
                picture(page, "messages")
                page.goto("/console/delays")
                picture(page, "delays")
            with tab(chromium, stage.admin, dark=True) as page:
                page.goto("/console/letters")
                picture(page, "letters-dark")
            with tab(chromium, stage.admin, narrow=True) as page:
                page.goto("/")
                picture(page, "overview-phone")
