"""A button that does nothing, or does it without asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compat_tests.console.chromium import tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from compat_tests.console.stage import Stage


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_a_message_cannot_be_produced(chromium: Browser, stage: Stage, narrow: bool) -> None:
    subject = stage.new()
    stage.create([subject])
    with tab(chromium, stage.admin, narrow=narrow) as page:
        page.goto(f"/console/subject?name={subject}")
        page.get_by_role("link", name="Produce one").click()
        page.locator("input[name=key]").fill("k-1")
        page.get_by_label("Value", exact=True).fill('{"hello": "world"}')
        page.locator("textarea[name=headers]").fill("tenant: a")
        page.get_by_role("button", name="Produce").click()
        expect(page.locator(".notice.good")).to_have_text("The message is stored at offset 0.")
        page.get_by_role("link", name="0", exact=True).click()
        expect(page.locator("pre")).to_contain_text('"hello": "world"')
        expect(page.get_by_text("tenant")).to_be_visible()


def test_a_double_click_produces_twice(chromium: Browser, stage: Stage) -> None:
    subject = stage.new()
    stage.create([subject])
    with tab(chromium, stage.admin) as page:
        page.goto(f"/console/produce?subject={subject}")
        page.get_by_label("Value", exact=True).fill("a payment")
        # The second click comes when the first form has been sent and not answered.
        page.evaluate(
            """() => {
              const button = document.querySelector("button.main");
              button.click();
              setTimeout(() => button.click(), 5);
            }"""
        )
        expect(page.locator(".notice.good")).to_have_text("The message is stored at offset 0.")
        page.go_back()
        page.get_by_role("button", name="Produce").click()
        expect(page.locator(".notice.good")).to_have_text("The message is stored at offset 1.")


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_a_delay_cannot_be_moved_or_cancelled(
    chromium: Browser, stage: Stage, narrow: bool
) -> None:
    subject = stage.new()
    stage.create([subject])
    with tab(chromium, stage.admin, narrow=narrow) as page:
        page.goto(f"/console/produce?subject={subject}")
        page.get_by_label("Value", exact=True).fill("later")
        page.locator("input[name=delay]").fill("1h")
        page.locator("input[name=delay_id]").fill("mine")
        page.get_by_role("button", name="Produce").click()
        expect(page.locator(".notice.good")).to_contain_text("will be delivered after 1h")
        rows = page.locator("#rows tbody tr")
        expect(rows).to_have_count(1)
        rows.get_by_placeholder("+15m").fill("5h")
        rows.get_by_role("button", name="Move").click()
        expect(page.locator(".notice.good")).to_contain_text("is now due at")
        rows.get_by_role("button", name="Cancel").click()
        _answer(page, "Back")
        expect(rows).to_have_count(1)
        rows.get_by_role("button", name="Cancel").click()
        _answer(page, "Do it")
        expect(page.locator(".notice.good")).to_contain_text("is cancelled")
        expect(page.locator("#rows")).to_contain_text("Nothing is pending here")


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_a_group_cannot_be_reset(chromium: Browser, stage: Stage, narrow: bool) -> None:
    subject, group = stage.new(), stage.new()
    stage.create([subject])
    stage.produce(subject, [(None, b"v") for _ in range(10)])
    stage.consume(subject, group, 6)
    with tab(chromium, stage.admin, narrow=narrow) as page:
        page.goto(f"/console/group?name={group}")
        page.locator("select[name=where]").select_option("offset")
        page.locator("input[name=place]").fill("2")
        page.get_by_role("button", name="Show what would happen").click()
        expect(page.locator("main")).to_contain_text("Nothing has changed yet")
        expect(page.locator("main")).to_contain_text("6 → 2")
        page.get_by_role("button", name="Reset").click()
        _answer(page, "Do it")
        expect(page.locator(".notice.good")).to_contain_text("at offset 2")
        expect(page.locator("#facts")).to_contain_text("8")


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_letters_cannot_be_sent_back_or_purged(
    chromium: Browser, stage: Stage, narrow: bool
) -> None:
    subject, group = stage.new(), stage.new()
    stage.create([subject])
    stage.produce(subject, [(b"k%d" % n, b"v") for n in range(3)])
    stage.letters(subject, group, 3)
    with tab(chromium, stage.admin, narrow=narrow) as page:
        page.goto(f"/console/letters?subject={subject}.{group}.dlq")
        expect(page.locator("#rows tbody tr")).to_have_count(3)
        page.goto(f"/console/letters?subject={subject}.{group}.dlq&key=k1")
        page.get_by_role("button", name="Redrive…").click()
        expect(page.locator("main")).to_contain_text("1 letter")
        expect(page.locator("main")).to_contain_text(f"{subject}: 1")
        page.get_by_role("button", name="Send back").click()
        _answer(page, "Do it")
        expect(page.locator(".notice.good")).to_have_text("1 dead letter sent back.")
        page.goto(f"/console/letters?subject={subject}.{group}.dlq")
        page.get_by_role("button", name="Purge…").click()
        expect(page.locator("main")).to_contain_text("2 letters")
        page.get_by_role("button", name="Purge", exact=True).click()
        _answer(page, "Do it")
        expect(page.locator(".notice.good")).to_have_text("2 dead letters purged.")
        expect(page.locator("#rows")).to_contain_text("No open letter fits")
        page.goto(f"/console/subject?name={subject}")
        expect(page.locator("#facts")).to_contain_text("0 to 4")


def test_an_error_is_not_told(chromium: Browser, stage: Stage) -> None:
    with tab(chromium, stage.admin, expects="404") as page:
        page.goto("/console/subject?name=nobody")
        expect(page.get_by_role("alert")).to_have_text("there is no subject 'nobody'")


def _answer(page: Page, button: str) -> None:
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name=button).click()
