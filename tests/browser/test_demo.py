"""The demo's own pages, with what a real cluster does, as a person would click through them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.gallery import Gallery
from tests.browser.watch import watched
from tests.demo_process import ONE_ROUND, DemoProcess
from tests.patience import wait_until

WIDTHS = (390, 1280)


@pytest.mark.slow
def test_from_the_sign_in_link_to_the_code_that_failed(browser: Browser, gallery: Gallery) -> None:
    with DemoProcess() as demo, watched(browser, demo.url) as window:
        page = window.page

        def look(name: str) -> None:
            page.wait_for_load_state("networkidle")
            for width in WIDTHS:
                window.resize(width)
                gallery.add(page, f"demo-{name}-{width}")
                assert window.overflow() == [], f"{width} pixels wide"
            assert window.trouble == []

        page.goto(demo.sign_in_link)
        page.get_by_role("button", name="Sign in").click()
        running = page.get_by_role("region", name="What is running?")
        expect(running.get_by_role("link", name="demo", exact=True)).to_be_visible()
        look("overview")

        running.get_by_role("link", name="demo", exact=True).click()
        page.wait_for_selector("#charts[data-drawn]")
        # It updates itself: nothing is reloaded while the demo works its way there.
        events = page.get_by_role("cell", name=re.compile(r'"parsed": \d+'))
        wait_until(events.first.is_visible, what="the event of a round", seconds=ONE_ROUND)
        expect(page.get_by_role("link", name="SyntaxError").first).to_be_visible()
        look("cluster")

        page.get_by_role("link", name="parsed = client.map(parse, sources)").last.click()
        expect(page.get_by_text("erred").first).to_be_visible()
        expect(page.locator(".calling code").first).to_have_text(
            re.compile(r"parsed = client\.map\(parse, sources\)")
        )
        expect(page.get_by_text("ast.parse").first).to_be_visible()
        # Its spans come when it has ended, its records as they are made; the page updates itself.
        failed = page.locator(".waterfall details", has_text="erred").first
        wait_until(failed.is_visible, what="the spans of the failed one", seconds=ONE_ROUND)
        failed.locator("summary").click()
        expect(
            failed.get_by_role("cell", name=re.compile("erred SyntaxError")).first
        ).to_be_visible()
        expect(failed.get_by_text(re.compile("a sample"))).to_be_visible()
        expect(page.get_by_role("region", name="Log records")).to_contain_text("SyntaxError")
        expect(page.locator(".histogram rect").first).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("Memory of all workers"))).to_be_visible()
        look("computation")

        page.goto("/jobs")
        page.get_by_role("link", name=re.compile("nightly report")).click()
        receipt = page.locator("#receipt")
        wait_until(receipt.is_visible, what="the receipt of the repair", seconds=ONE_ROUND)
        expect(receipt).to_contain_text(re.compile(r"Saves \d+\s% since .* Gone since then:"))
        expect(receipt).to_contain_text("tiny tasks")
        changes = page.get_by_role("link", name="compare with the run before")
        assert changes.count() >= 2  # slower, then faster
        look("job")
