"""A page that a browser cannot show: errors in its console, requests to others, wider than its window."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from compat_tests.console.chromium import fits, tab
from compat_tests.support import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from compat_tests.console.stage import Stage

PAGES = {
    "overview": ("/", "Overview"),
    "subjects": ("/console/subjects", "Subjects"),
    "subject": ("/console/subject?name=orders", "orders"),
    "messages": ("/console/messages?subject=orders", "Messages"),
    "message": ("/console/message?subject=orders&offset=7", "Message 7"),
    "bytes": ("/console/message?subject=clicks&offset=39&as=hex", "Message 39"),
    "produce": ("/console/produce?subject=orders", "Produce one message"),
    "groups": ("/console/groups", "Groups"),
    "group": ("/console/group?name=analytics", "analytics"),
    "delays": ("/console/delays", "Delays"),
    "letters": ("/console/letters", "Dead letters"),
    "letter": ("/console/letter?subject=orders.billing.dlq&sequence=0", "Letter 0"),
    "trace": ("/console/trace?subject=orders&offset=7", "History of a message"),
    "search": ("/console/search?q=order", "Search"),
    "configs": ("/console/configs", "Configs of the broker"),
    "connections": ("/console/connections", "Connections"),
}


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_a_page_cannot_be_shown(chromium: Browser, stage: Stage, narrow: bool) -> None:
    stage.everything()
    with tab(chromium, stage.admin, narrow=narrow) as page:
        for address, heading in PAGES.values():
            page.goto(address)
            expect(page.get_by_role("heading", level=1)).to_have_text(heading)
            expect(page.locator("nav [aria-current=page]")).to_have_count(1)
            fits(page)


def test_a_page_is_too_wide_for_the_smallest_phone_in_the_dark(
    chromium: Browser, stage: Stage
) -> None:
    stage.everything()
    with tab(chromium, stage.admin, narrow=True, dark=True) as page:
        page.set_viewport_size({"width": 360, "height": 740})
        for address, _ in PAGES.values():
            page.goto(address)
            fits(page)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colour == "rgb(16, 18, 22)"


@pytest.mark.parametrize("width", [360, 800, 1000, 1280, 1900])
def test_a_page_with_long_names_is_too_wide(chromium: Browser, stage: Stage, width: int) -> None:
    stage.everything()
    subject, group = f"{'long.name-' * 12}{stage.new()}", f"{'Group_' * 30}{stage.new()}"
    stage.create([subject])
    stage.produce(subject, [(b"k" * 400, b"v" * 4000)] * 3, [("h" * 300, b"x" * 300)])
    with closing(stage.consumer(subject, group)) as consumer:
        eventually(lambda: bool(consumer.poll(500)), "a first message")
        with tab(chromium, stage.admin) as page:
            page.set_viewport_size({"width": width, "height": 800})
            for address in (
                *(address for address, _ in PAGES.values()),
                f"/console/group?name={group}",
                f"/console/subject?name={subject}",
                f"/console/messages?subject={subject}",
                f"/console/message?subject={subject}&offset=1",
                f"/console/trace?subject={subject}&offset=1",
            ):
                page.goto(address)
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                fits(page)


def test_pages_say_nothing_of_what_is_there(chromium: Browser, stage: Stage) -> None:
    stage.everything()
    with tab(chromium, stage.admin) as page:
        page.goto("/")
        attention = page.locator("#troubles")
        expect(attention).to_contain_text("No consumer is running")
        expect(attention).to_contain_text("30 messages of clicks wait")
        expect(attention).to_contain_text("4 dead letters are open")
        page.goto("/console/subject?name=orders")
        expect(page.locator("#facts")).to_contain_text("120")
        expect(page.locator("#readers")).to_contain_text("billing")
        expect(page.locator(".configs")).to_contain_text("How groups that do not set it themselves")
        page.goto("/console/message?subject=orders&offset=7")
        expect(page.locator("pre")).to_contain_text('"order": 7')
        expect(page.get_by_text("trace-id")).to_be_visible()
        page.get_by_role("link", name="HEX").click()
        expect(page.locator("pre")).to_contain_text("00000000  7b 22 6f 72")
        page.goto("/console/delays")
        expect(page.locator("#total")).to_have_text("30 pending")
        expect(page.locator("#plot svg rect.bar")).to_have_count(24)
        page.goto("/console/letters?reason=rejected")
        expect(page.locator("#rows tbody tr")).to_have_count(4)
        expect(page.locator("#rows")).to_contain_text("the card has expired")
        page.goto("/console/configs?q=retention")
        expect(page.locator("tbody")).to_contain_text("log.retention.ms")


def test_pages_cannot_be_read_without_the_script(chromium: Browser, stage: Stage) -> None:
    stage.everything()
    with tab(chromium, stage.admin, script=False) as page:
        for address, heading in PAGES.values():
            page.goto(address)
            expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        page.goto("/console/messages?subject=orders&offset=3")
        expect(page.locator("tbody time").first).to_contain_text("UTC")


def test_what_a_message_holds_is_run(chromium: Browser, stage: Stage) -> None:
    subject = stage.new()
    stage.create([subject])
    evil = b"<img src=//evil.example/x onerror=alert(1)><script>fetch('//evil.example')</script>"
    stage.produce(
        subject, [(evil, evil), (evil, b'{"a": "' + evil + b'"}')], [(evil.decode(), evil)]
    )
    with tab(chromium, stage.admin) as page:
        for address in (
            f"/console/messages?subject={subject}",
            *(f"/console/message?subject={subject}&offset={n}" for n in (0, 1)),
        ):
            page.goto(address)
            expect(page.locator("main")).to_contain_text("<img src=//evil.example")
            assert page.locator("main img, main script").count() == 0


def test_a_label_a_name_or_a_focus_ring_is_missing(chromium: Browser, stage: Stage) -> None:
    stage.everything()
    nameless = """() => [...document.querySelectorAll('input:not([type=hidden]), select, textarea, button')]
        .filter(e => !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim()))
        .map(e => e.outerHTML)"""
    with tab(chromium, stage.admin) as page:
        for address, _ in PAGES.values():
            page.goto(address)
            assert page.evaluate(nameless) == []
            assert page.evaluate("document.documentElement.lang") == "en"
            assert page.evaluate(
                "new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size"
                " === document.querySelectorAll('[id]').length"
            )
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring == "solid"
