"""Pages on paper: all that they say, none of what one does with them, in light colours."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.gallery import Gallery
from tests.browser.watch import Site, watched

#: The width of what is printed on A4, in CSS pixels, less the margins.
PAPER = 703


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/clusters?user=maria.lindqvist",
        "/clusters/{running}",
        "/computations",
        "/clusters/{erred[0]}/computations/{erred[1]}",
        "/exceptions",
        "/exceptions/{fingerprint}",
        "/events",
        "/logs",
        "/people",
        "/profile?cluster={lost}",
        "/settings/tokens",
    ],
)
def test_a_page_fits_on_paper_without_its_controls(
    browser: Browser, site: Site, gallery: Gallery, path: str
) -> None:
    seeded = site.seeded
    path = path.format(
        running=seeded.running,
        lost=seeded.lost,
        erred=seeded.computations["erred"],
        fingerprint=seeded.fingerprints[0],
    )
    with watched(
        browser, site.service.url, user=site.owner, width=PAPER, scheme="dark", javascript=False
    ) as window:
        page = window.page
        page.goto(path)
        page.emulate_media(media="print")
        name = path.partition("?")[0].replace("/", "-").strip("-") or "overview"
        gallery.add(page, f"print-{name[:40]}")
        gallery.add_print(page, f"print-{name[:40]}")
        for control in page.locator(
            "nav, button, .button, .downloads, select:not(.filters *)"
        ).all():
            expect(control).to_be_hidden()
        expect(page.get_by_text("workspace team").first).to_be_visible()
        assert page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
        if "user=" in path:
            expect(page.get_by_label("User")).to_have_value("maria.lindqvist")
            expect(page.get_by_label("User")).to_be_visible()
            expect(page.get_by_label("Kind")).to_be_hidden()
        # Paper does not scroll: here tables must fit too.
        wide = "[...document.querySelectorAll('table')].filter(e => e.getBoundingClientRect().right"
        assert page.evaluate(f"{wide} > {PAPER}).map(e => e.outerHTML.slice(0, 99))") == []
        assert window.overflow() == []


def test_charts_that_a_script_drew_in_the_dark_are_printed_in_light_colours(
    browser: Browser, site: Site, gallery: Gallery
) -> None:
    of_grid = """canvas => {
        const grid = getComputedStyle(document.documentElement).getPropertyValue("--line").trim();
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let i = 0; i < data.length; i += 4) {
            const hex = [...data.slice(i, i + 3)].map(v => v.toString(16).padStart(2, "0"));
            found += data[i + 3] === 255 && `#${hex.join("")}` === grid;
        }
        return [grid, found > 100];
    }"""
    with watched(browser, site.service.url, token=site.token, scheme="dark") as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.running}")
        canvas = page.locator("#chart-memory canvas")
        expect(canvas).to_be_visible()
        dark, drawn = canvas.evaluate(of_grid)
        assert drawn
        gallery.add_print(page, "print-charts")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        light, drawn = canvas.evaluate(of_grid)
        assert light != dark
        assert drawn
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert canvas.evaluate(of_grid) == [dark, True]


def test_what_is_folded_is_printed(browser: Browser, site: Site) -> None:
    cluster, computation = site.seeded.computations["erred"]
    with watched(browser, site.service.url, token=site.token, javascript=False) as window:
        window.page.goto(f"/clusters/{cluster}/computations/{computation}")
        traceback = window.page.locator(".failure:not([open]) .traceback").first
        expect(traceback).to_be_attached()
        expect(traceback).to_be_hidden()
        window.page.emulate_media(media="print")
        expect(traceback).to_be_visible()
