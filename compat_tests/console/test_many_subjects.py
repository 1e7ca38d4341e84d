"""With 100,000 subjects the console is slow, shows too much, or finds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compat_tests.console.chromium import tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from compat_tests.console.stage import Stage

pytestmark = pytest.mark.long  # it makes 100,000 subjects
MANY = 100_000
AT_ONCE = 2000


def test_a_hundred_thousand_subjects_cannot_be_looked_through(
    chromium: Browser, stage: Stage
) -> None:
    for first in range(0, MANY, AT_ONCE):
        stage.create([f"subject-{number:06}" for number in range(first, first + AT_ONCE)])
    stage.produce("subject-031415", [(b"k", b"found it")])
    stage.consume("subject-031415", "reader", 1)
    for narrow in (False, True):
        with tab(chromium, stage.admin, narrow=narrow) as page:
            page.goto("/")
            expect(page.locator("#busiest")).to_contain_text("All 100,00")
            page.goto("/console/subjects")
            expect(page.locator("#total")).to_contain_text("100,00")
            expect(page.locator("#rows tbody tr")).to_have_count(50)
            page.get_by_role("link", name="Next page").click()
            page.wait_for_url("**after=*")
            expect(page.locator("#rows tbody tr")).to_have_count(50)
            page.keyboard.press("/")
            page.keyboard.type("31415")
            page.keyboard.press("Enter")
            expect(page.locator("#rows tbody tr")).to_have_count(1)
            page.get_by_role("link", name="subject-031415").click()
            expect(page.locator("#readers")).to_contain_text("reader")
            page.get_by_role("link", name="Messages").click()
            expect(page.locator("#rows")).to_contain_text("found it")
            with page.expect_response(lambda answer: answer.status == 304):
                pass
