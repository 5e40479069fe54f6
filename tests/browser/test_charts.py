"""The charts of a cluster, as a reader uses them: one time for all, in the address."""

from __future__ import annotations

import re
from datetime import datetime
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.watch import Site, watched

#: The charts, once they have been drawn.
_DRAWN = "#charts[data-drawn]"


def _drag(page: Page, chart: str, begin: float, end: float) -> None:
    """Drag over a chart, from one share of its width to another."""
    page.locator(f"#chart-{chart}").scroll_into_view_if_needed()
    box = page.locator(f"#chart-{chart} .u-over").bounding_box()
    assert box is not None
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], height)
    page.mouse.down()
    page.mouse.move(box["x"] + (begin + end) / 2 * box["width"], height)
    page.mouse.move(box["x"] + end * box["width"], height)
    page.mouse.up()


def _shown(page: Page) -> str:
    return page.locator("#charts-range").inner_text()


def _seconds_shown(page: Page) -> float:
    begin, end = _shown(page).removesuffix(" UTC").split(" to ")
    if " " not in end:
        end = f"{begin.split()[0]} {end}"
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def _asked(page: Page) -> tuple[datetime, datetime]:
    query = parse_qs(urlparse(page.url).query)
    since, until = (datetime.fromisoformat(query[name][0]) for name in ("from", "to"))
    return since, until


def test_dragging_on_one_chart_zooms_all_and_going_back_works(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.stopped}")
        page.wait_for_selector(_DRAWN)
        assert page.locator("#charts canvas").count() == 9
        whole = _shown(page)
        _drag(page, "tasks", 0.25, 0.75)
        page.wait_for_url(re.compile(r"\?from=.*&to="))
        since, until = _asked(page)
        assert 1790 <= (until - since).total_seconds() <= 1830  # half of 3,620 seconds
        words = f"{since:%Y-%m-%d %H:%M:%S} to {until:%H:%M:%S} UTC"
        if since.date() != until.date():
            words = f"{since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC"
        expect(page.locator("#charts-range")).to_have_text(words)
        _drag(page, "transfer", 0.5, 0.6)
        page.wait_for_function("before => location.search !== before", arg=urlparse(page.url).query)
        page.go_back()
        assert _asked(page) == (since, until)
        page.go_back()
        expect(page.locator("#charts-range")).to_have_text(whole)
        page.go_forward()
        page.locator("#chart-memory .u-over").dblclick()
        expect(page.locator("#charts-range")).to_have_text(whole)
        assert urlparse(page.url).query == ""
        assert window.trouble == []


def test_a_zoomed_chart_stays_so_while_the_page_updates_and_keeps_the_focus(
    browser: Browser, site: Site
) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.running}")
        page.wait_for_selector(_DRAWN)
        page.get_by_role("link", name="earlier").click()
        page.wait_for_url(re.compile(r"\?from=.*&to="))
        page.get_by_role("link", name="zoom in").focus()
        address, before = page.url, page.locator("#updated").inner_text()
        expect(page.locator("#charts-range")).to_contain_text(f"{_asked(page)[0]:%H:%M:%S} to")
        shown = _shown(page)
        expect(page.locator("#updated")).not_to_have_text(before)
        assert (page.url, _shown(page)) == (address, shown)
        assert page.evaluate("document.activeElement.textContent") == "zoom in"
        assert page.locator("#charts canvas").count() == 7
        assert window.trouble == []


def test_charts_are_read_and_zoomed_with_keys(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.stopped}")
        page.wait_for_selector(_DRAWN)
        last = page.locator("#chart-workers .legend").inner_text()
        page.locator("#charts").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#chart-workers .legend")).not_to_have_text(last)
        lines = page.locator("#charts .u-cursor-x")
        places = lines.evaluate_all("all => all.map(one => one.getBoundingClientRect().x > 0)")
        assert places == [True] * 9  # one cursor for all
        page.keyboard.press("+")
        page.wait_for_url(re.compile(r"\?from=.*&to="))
        page.keyboard.press("Escape")
        page.wait_for_url(re.compile(r"[^?]*$"))
        assert page.evaluate("document.activeElement.id") == "charts"
        assert window.trouble == []


def test_a_phone_is_told_what_touching_does(touch_browser: Browser, site: Site) -> None:
    where = site.service.url
    with watched(touch_browser, where, token=site.token, width=390, touch=True) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.running}?span=life")
        page.wait_for_selector(_DRAWN)
        told = page.locator("#charts-at")
        expect(told).to_have_text("Touch a chart to read it.")
        page.locator("#chart-disk").scroll_into_view_if_needed()
        page.locator("#chart-disk .u-over").tap()
        expect(told).to_contain_text("UTC")
        assert window.trouble == []


@pytest.mark.parametrize(("width", "touch"), [(390, True), (390, False), (700, False)])
def test_the_hint_is_not_cut(browser: Browser, site: Site, width: int, touch: bool) -> None:
    where = site.service.url
    with watched(browser, where, token=site.token, width=width, touch=touch) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.running}?span=life")
        page.wait_for_selector(_DRAWN)
        told = page.locator("#charts-at")
        expect(told).to_contain_text("a chart to")
        assert told.evaluate("told => told.scrollWidth <= told.clientWidth")
        height = told.evaluate("told => told.offsetHeight")
        assert height <= told.evaluate("told => parseFloat(getComputedStyle(told).minHeight)")
        assert window.trouble == []


def test_the_cursor_tells_of_marks_and_values(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.running}?span=life")
        page.wait_for_selector(_DRAWN)
        expect(page.locator("#marks-key")).to_contain_text("1 worker lost")
        page.locator("#charts").focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#charts-at")).to_contain_text("▬ a computation, running")
        box = page.locator("#chart-disk .u-over").bounding_box()
        assert box is not None
        # It runs, so that its life is longer by now than it was made.
        lost = (5400 - 2100) / _seconds_shown(page)
        page.mouse.move(box["x"] + lost * box["width"], box["y"] + 20)
        expect(page.locator("#charts-at")).to_contain_text("◆ features-worker-17 lost")
        assert window.trouble == []


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_links_zoom_and_move_in_the_same_way(browser: Browser, site: Site, script: bool) -> None:
    with watched(browser, site.service.url, token=site.token, javascript=script) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.stopped}")
        for name in ("last 15 min", "zoom in", "earlier", "earlier", "zoom out", "later"):
            if script:
                page.wait_for_selector(_DRAWN)
            before = _shown(page)
            page.get_by_role("link", name=name, exact=True).click()
            expect(page.locator("#charts-range")).not_to_have_text(before)
        since, until = _asked(page)
        assert (until - since).total_seconds() in range(895, 910)
        page.get_by_role("link", name="whole life").click()
        expect(page.get_by_role("link", name="whole life")).to_have_attribute(
            "aria-current", "true"
        )
        expect(page.get_by_text("later", exact=True)).not_to_have_attribute("href", re.compile("."))
        assert window.trouble == []


def test_a_chart_says_all_without_a_script(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token, javascript=False) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.stopped}")
        memory = page.get_by_role("img", name="Memory of the workers")
        expect(memory).to_have_accessible_name(re.compile("limit 1 TiB at last, 1 TiB at most"))
        assert page.locator("#charts svg.spark").count() == 9
        page.goto(f"/clusters/{site.seeded.lost}")
        assert page.locator("#charts svg.spark").count() == 5
        expect(page.get_by_text("Workers that may not spill do not report it")).to_have_count(2)
        expect(page.locator("#marks-key")).to_contain_text("1 computation")
        assert window.trouble == []


def test_charts_say_when_the_service_is_away_and_go_on_after(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.running}")
        page.wait_for_selector(_DRAWN)
        page.route("**/*", lambda route: route.abort())
        expect(page.get_by_text("does not answer: the charts are as of")).to_be_visible()
        page.unroute("**/*")
        expect(page.get_by_text("does not answer: the charts are as of")).to_be_hidden()


def test_nothing_moves_when_the_script_draws(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.add_init_script(
            """window.moved = [];
            new PerformanceObserver((list) => window.moved.push(...list.getEntries().map(
              (e) => [e.value, ...e.sources.map((s) => s.node?.outerHTML?.slice(0, 80))])))
            .observe({ type: "layout-shift", buffered: true });"""
        )
        page.goto(f"/clusters/{site.seeded.running}")
        page.wait_for_selector(_DRAWN)
        page.wait_for_function(
            "new Promise((r) => requestAnimationFrame(() => setTimeout(r, 50, 1)))"
        )
        assert page.evaluate("window.moved") == []
