"""A page that grows old, forgets what somebody writes, or has keys that do not work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from compat_tests.console.chromium import tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

    from compat_tests.console.stage import Stage


def test_a_page_shows_what_was_there_when_it_was_loaded(chromium: Browser, stage: Stage) -> None:
    subject = stage.new()
    stage.create([subject])
    with tab(chromium, stage.admin) as page:
        page.goto(f"/console/messages?subject={subject}")
        expect(page.locator("#rows")).to_contain_text("There are no messages here")
        stage.produce(subject, [(b"k", b"it has come")])
        expect(page.locator("#rows")).to_contain_text("it has come")
        page.goto(f"/console/subject?name={subject}")
        expect(page.locator("#facts")).to_contain_text("0 to 1")
        stage.produce(subject, [(b"k", b"another one")])
        expect(page.locator("#facts")).to_contain_text("0 to 2")


def test_a_hidden_page_asks_on_or_an_unchanged_one_is_sent_again(
    chromium: Browser, stage: Stage
) -> None:
    subject = stage.new()
    stage.create([subject])
    with tab(chromium, stage.admin) as page:
        page.goto(f"/console/messages?subject={subject}")
        with page.expect_response(lambda answer: answer.status == 304):
            pass
        _hide(page, True)
        expect(page.locator("#live")).to_have_class("live off")
        asked: list[Request] = []
        page.on("request", lambda request: asked.append(request))
        page.evaluate("new Promise(done => setTimeout(done, 3 * 2000))")
        assert asked == []
        _hide(page, False)
        expect(page.locator("#live")).to_have_class("live on")
        with page.expect_response("**/console/messages*"):
            pass


def test_what_somebody_writes_is_replaced(chromium: Browser, stage: Stage) -> None:
    stage.everything()
    with tab(chromium, stage.admin) as page:
        page.goto("/console/groups")
        page.locator("#filter").fill("anal")
        with page.expect_response("**/console/groups*"):
            pass
        with page.expect_response("**/console/groups*"):
            pass
        expect(page.locator("#filter")).to_have_value("anal")
        page.keyboard.press("Enter")
        page.wait_for_url("**/console/groups?q=anal")
        expect(page.locator("#rows tbody tr")).to_have_count(1)


def test_keys_do_not_lead_anywhere(chromium: Browser, stage: Stage) -> None:
    stage.everything()
    with tab(chromium, stage.admin) as page:
        page.goto("/")
        page.keyboard.press("/")
        expect(page.locator("#find")).to_be_focused()
        page.keyboard.type("g s order")
        expect(page.locator("#find")).to_have_value("g s order")
        page.keyboard.press("Escape")
        expect(page.locator("#find")).not_to_be_focused()
        for key, address in (("s", "subjects"), ("g", "groups"), ("d", "delays"), ("c", "configs")):
            page.keyboard.press("g")
            page.keyboard.press(key)
            page.wait_for_url(f"**/console/{address}")
        page.keyboard.press("g")
        page.keyboard.press("o")
        page.wait_for_url(f"{stage.admin}/")
        page.keyboard.press("/")
        page.keyboard.type("bill")
        page.keyboard.press("Enter")
        page.wait_for_url("**/console/search?q=bill")
        page.get_by_role("link", name="billing", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("billing")


def test_the_theme_is_forgotten(chromium: Browser, stage: Stage) -> None:
    with tab(chromium, stage.admin) as page:
        page.goto("/")
        light = _ground(page)
        page.locator("#theme").click()
        assert _ground(page) != light
        page.goto("/console/subjects")
        assert _ground(page) != light
        page.locator("#theme").click()
        assert _ground(page) == light


def test_a_broker_that_has_gone_looks_alive(chromium: Browser, stage: Stage) -> None:
    with tab(chromium, stage.admin, expects="ERR_") as page:
        page.goto("/")
        expect(page.locator("#live")).to_have_class("live on")
        page.context.route("**/*", lambda route: route.abort())
        expect(page.locator("#live")).to_have_class("live lost")
        page.context.unroute_all()
        expect(page.locator("#live")).to_have_class("live on")


def _ground(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def _hide(page: Page, hidden: bool) -> None:
    """What the browser says when somebody looks at another tab."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )
