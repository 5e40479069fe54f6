"""Walks a profile as its reader would: into a call and back, to a line, from a cluster's page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.watch import Site, watched


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
def test_a_reader_finds_the_call_that_takes_the_time(
    browser: Browser, site: Site, javascript: bool
) -> None:
    with watched(browser, site.service.url, token=site.token, javascript=javascript) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.lost}")
        page.get_by_role("link", name="Profile: the lines of code").click()
        flame = page.get_by_role("region", name="Flame graph")
        drawn = flame.locator("svg svg")
        # A count waits for nothing: all of the graph must have come, and what is below it.
        expect(page.get_by_role("heading", name="Lines of code")).to_be_visible()
        all_calls = drawn.count()
        flame.locator("text.wide", has_text=re.compile("^parse_events")).click()
        expect(page).to_have_url(re.compile("zoom="))
        expect(drawn).not_to_have_count(all_calls)
        lines = page.get_by_role("region", name="Lines of code")
        expect(lines.get_by_text("parse_distance").first).to_be_visible()
        expect(lines.get_by_text("to_table")).to_have_count(0)
        page.get_by_role("link", name="Show all calls").click()
        expect(drawn).to_have_count(all_calls)

        page.get_by_label("Find a function or file").fill("parse_d")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("#found")).to_contain_text("27 % of all")
        expect(flame.locator(".found")).to_have_count(1)
        page.get_by_role("link", name="With its calls").click()
        expect(lines.get_by_role("row").nth(1)).to_contain_text("_bootstrap")
        page.go_back()
        expect(page).not_to_have_url(re.compile("sort="))
        assert window.trouble == []


def test_the_keyboard_reaches_calls(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        window.page.goto(f"/profile?cluster={site.seeded.lost}")
        window.page.locator(".flame a").nth(4).focus()
        window.page.keyboard.press("Enter")
        expect(window.page.get_by_role("link", name="Show all calls")).to_be_visible()


def test_logs_and_events_are_reached_from_their_cluster_and_filtered(
    browser: Browser, site: Site
) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.running}")
        page.get_by_role("main").get_by_role("link", name="Logs", exact=True).click()
        rows = page.get_by_role("region", name="Log records").locator("tbody tr")
        expect(rows).to_have_count(4)
        page.get_by_label("Level").select_option("error")
        page.get_by_role("button", name="Show").click()
        expect(rows).to_have_count(2)
        expect(page).to_have_url(re.compile(r"logs\?level=error&cluster=[^&]*$"))
        rows.first.get_by_role("link", name="Computation").click()
        expect(page).to_have_url(re.compile("/computations/run"))
        page.goto(f"/clusters/{site.seeded.running}")
        page.get_by_role("link", name="All events").click()
        page.get_by_role("link", name="invalid-worker-transition").click()
        expect(page).to_have_url(re.compile("topic=invalid-worker-transition"))
        assert window.trouble == []
