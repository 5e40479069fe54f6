"""The way from any page to all others: by mouse and keyboard, wide and narrow, without a script."""

from __future__ import annotations

import re
from functools import partial

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser.watch import Site, watched

#: Every part of the workspace by its name in the navigation, and the heading to which it leads.
PARTS = {
    "Overview": "Overview",
    "Clusters": "Clusters",
    "Computations": "Computations",
    "Jobs": "Jobs",
    "Findings": "Findings",
    "Exceptions": "Exceptions",
    "Profile": "Profile",
    "Events": "Events",
    "Logs": "Logs",
    "People and cost": "People and cost",
    "Settings": "Members",
}

WIDTHS = (360, 768, 1280, 2560)


def navigation(page: Page) -> Locator:
    """Return the navigation, opened first where it lies under a button."""
    found = page.get_by_role("navigation", name="Main")
    button = page.get_by_role("button", name="Menu")
    if button.is_visible() and not found.is_visible():
        button.click()
    return found


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
def test_every_part_is_one_choice_away_and_marked(
    browser: Browser, site: Site, javascript: bool
) -> None:
    with watched(browser, site.service.url, user=site.owner, javascript=javascript) as window:
        page = window.page

        def marked(part: str, how: str) -> None:
            """Expect the part to be marked, and all others to be offered, at each width."""
            for width in WIDTHS:
                window.resize(width)
                main = navigation(page)
                here = main.locator("[aria-current]")
                expect(here).to_have_text(part)
                expect(here).to_have_attribute("aria-current", how)
                links = main.get_by_role("link")
                expect(links).to_have_text([*PARTS])
                # A trial finds out whether it could be clicked where it is.
                for link in links.all() if part == "Overview" else ():
                    link.click(trial=True)
                assert window.overflow() == [], f"{part}, {width} pixels wide"

        page.goto("/")
        for number, (part, heading) in enumerate(PARTS.items()):
            # Some in a wide window, some in a narrow one.
            window.resize(WIDTHS[number % len(WIDTHS)])
            navigation(page).get_by_role("link", name=part, exact=True).click()
            expect(page.get_by_role("heading", level=1, name=heading, exact=True)).to_be_visible()
            expect(page).to_have_title(re.compile(".+ · daskscope$"))
            marked(part, "page")
        page.goto(f"/clusters/{site.seeded.running}")
        marked("Clusters", "true")
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        assert window.trouble == []


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_keyboard_skips_to_the_content_and_goes_through_the_navigation(
    browser: Browser, site: Site, width: int, javascript: bool
) -> None:
    with watched(
        browser, site.service.url, user=site.owner, width=width, javascript=javascript
    ) as window:
        page = window.page

        def focused() -> Locator:
            return page.locator(":focus")

        page.goto("/exceptions")
        page.keyboard.press("Tab")
        expect(focused()).to_have_text("Skip to the content")
        expect(focused()).to_be_in_viewport()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null")

        page.goto("/exceptions")
        narrow = page.get_by_role("button", name="Menu").is_visible()
        for name in ("Skip to the content", "daskscope", *(["Menu"] if narrow else [])):
            page.keyboard.press("Tab")
            expect(focused()).to_have_text(name)
        if narrow:
            page.keyboard.press("Enter")
            expect(page.get_by_role("navigation", name="Main")).to_be_visible()
            page.keyboard.press("Escape")
            expect(page.get_by_role("navigation", name="Main")).to_be_hidden()
            expect(focused()).to_have_text("Menu")
            page.keyboard.press("Enter")
        for part in PARTS:
            page.keyboard.press("Tab")
            expect(focused()).to_have_text(part)
            expect(focused()).to_be_in_viewport()
            assert page.evaluate(
                "getComputedStyle(document.activeElement).outlineStyle") != "none"  # fmt: skip
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1, name="People and cost")).to_be_visible()
        assert window.trouble == []


_PLACES = """[".brand", ".top nav"].map(
  (what) => document.querySelector(what)?.getBoundingClientRect().toJSON())"""


def _answer(html: str, route: Route) -> None:
    route.fulfill(body=html, content_type="text/html")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_header_stays_where_it_is_while_the_page_arrives(
    browser: Browser, site: Site, width: int
) -> None:
    with watched(browser, site.service.url, user=site.owner, width=width) as window:
        page = window.page
        whole = page.goto("/account")
        assert whole is not None
        html = whole.text()
        places = []
        for end in ('<button class="quiet open-menu"', "</nav>", "</header>"):
            answer = partial(_answer, html[: html.index(end)])
            page.route("**/account", answer)
            page.goto("/account")
            places.append(page.evaluate(_PLACES))
            page.unroute("**/account")
    (alone, _), (beside, nav), (full, last) = places
    assert alone == beside == full
    assert nav == last
