"""The task stream of a cluster, as a reader uses it: drawn, zoomed, and read run by run."""

from __future__ import annotations

import re
from datetime import datetime
from urllib.parse import parse_qs, urlparse

from playwright.sync_api import Browser, Page, expect

from tests.browser.watch import Site, watched
from tests.seed_stream import PREFIXES, WORKERS

_DRAWN = "#stream[data-drawn]"

#: The colours of a canvas' pixels, and how many pixels each has.
_COLOURS = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = {};
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] < 255) continue;
    const colour = data.slice(i, i + 3).join();
    found[colour] = (found[colour] ?? 0) + 1;
  }
  return found;
}"""


def _open(page: Page, site: Site, query: str = "") -> None:
    page.goto(f"/clusters/{site.seeded.stopped}/stream{query}")
    page.wait_for_selector(_DRAWN)


def _seconds_shown(page: Page) -> float:
    begin, end = page.locator("#stream-range").inner_text().replace(" UTC", "").split(" to ")
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def _asked(page: Page) -> tuple[datetime, datetime]:
    query = parse_qs(urlparse(page.url).query)
    since, until = (datetime.fromisoformat(query[name][0]) for name in ("since", "until"))
    return since, until


def _tip(page: Page, xs: range) -> str:
    """Move the pointer over the first worker's lanes until a run is read; return what it says."""
    box = page.locator("#stream canvas").bounding_box()
    assert box is not None
    for x in xs:
        page.mouse.move(box["x"] + x, box["y"] + 30)
        if page.locator("#stream-tip").is_visible():
            return page.locator("#stream-tip").inner_text()
    raise AssertionError("no run is there")


def test_the_stream_is_drawn_and_a_run_is_read(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        _open(page, site)
        drawn = page.locator("#stream canvas").evaluate(_COLOURS)
        assert sum(count > 500 for count in drawn.values()) >= len(PREFIXES) - 1
        said = _tip(page, range(200, 700, 5))
        prefix, worker, what = said.split("\n")
        assert prefix in PREFIXES
        assert worker == WORKERS[0]
        assert re.search(r"began \d\d:\d\d:\d\d\.\d{3} UTC · (finished|erred)", what)
        assert window.trouble == []


def test_zooming_changes_the_time_the_address_and_the_table(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        _open(page, site)
        whole = _seconds_shown(page)
        before = page.locator("#stream-sentence").inner_text()
        box = page.locator("#stream canvas").bounding_box()
        assert box is not None
        middle = 180 + (box["width"] - 180) / 2
        page.mouse.move(box["x"] + middle, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + middle + 50, box["y"] + 60)
        page.mouse.move(box["x"] + middle + (box["width"] - 180) / 4, box["y"] + 60)
        page.mouse.up()
        page.wait_for_url(re.compile(r"\?since=.*&until="))
        since, until = _asked(page)
        assert 0.2 * whole < (until - since).total_seconds() < 0.3 * whole
        expect(page.locator("#stream-sentence")).not_to_have_text(before)
        page.locator("#stream").focus()
        page.keyboard.press("-")
        page.wait_for_function("before => location.search !== before", arg=urlparse(page.url).query)
        _open(page, site, "?" + urlparse(page.url).query)
        assert _seconds_shown(page) < whole
        assert window.trouble == []


def test_filters_choose_what_is_drawn(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        _open(page, site, f"?worker={WORKERS[3]}&prefix={PREFIXES[2]}")
        prefix, worker, _ = _tip(page, range(200, 1200, 4)).split("\n")
        assert (prefix, worker) == (PREFIXES[2], WORKERS[3])
        assert window.trouble == []
