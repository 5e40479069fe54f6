"""Reads a computation's page as someone would who asks what took so long, and what failed."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.watch import Site, watched


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
def test_a_reader_finds_the_runs_that_failed(
    browser: Browser, site: Site, javascript: bool, width: int
) -> None:
    cluster, id = site.seeded.computations["erred"]
    where = watched(browser, site.service.url, token=site.token, javascript=javascript, width=width)
    with where as window:
        page = window.page
        page.goto(f"/clusters/{cluster}/computations/{id}")
        expect(page.locator(".calling .tok-string").first).to_be_visible()
        contents = page.get_by_role("navigation", name="On this page")
        contents.get_by_role("link", name="Over time").click()
        expect(page).to_have_url(re.compile("#h-trace$"))
        failed = page.locator(".waterfall details", has_text="erred")
        expect(failed).to_have_count(1)
        failed.locator("summary").press("Enter")
        rows = failed.get_by_role("row")
        expect(rows).to_have_count(7)
        expect(rows.filter(has_text="erred ValueError")).to_have_count(2)
        expect(failed.get_by_text("6 of 770 task runs: a sample.")).to_be_visible()
        assert window.overflow() == []
        page.get_by_role("link", name="by time spent").click()
        expect(page).to_have_url(re.compile(r"sort=time#h-groups$"))
        groups = page.get_by_role("region", name="Task groups", exact=True).get_by_role("row")
        expect(groups.nth(1)).to_contain_text("read-parquet")
        assert window.trouble == []


def test_an_update_leaves_open_what_was_opened(browser: Browser, site: Site) -> None:
    cluster, id = site.seeded.computations["erred"]
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{cluster}/computations/{id}")
        group = page.locator(".waterfall details").first
        group.locator("summary").click()
        expect(group).to_have_attribute("open", "")
        with page.expect_response(re.compile(f"/computations/{id}")):
            page.evaluate("htmx.ajax('GET', location.pathname, {target: '#live', select: '#live',"
                          " swap: 'outerMorph'})")  # fmt: skip
        expect(page.locator(".waterfall details").first).to_have_attribute("open", "")
        assert window.trouble == []


def test_records_of_a_computation_lead_to_all_of_its_time(browser: Browser, site: Site) -> None:
    cluster, id = site.seeded.computations["lost"]
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{cluster}/computations/{id}")
        records = page.get_by_role("region", name="Log records").locator("tbody tr")
        expect(records).to_have_count(3)
        expect(records.first).to_contain_text("dask.computation.started")
        lines = page.get_by_role("region", name="Lines of code that took most time")
        expect(lines.get_by_role("row")).to_have_count(6)
        page.get_by_role("link", name="All its records").click()
        only = page.get_by_role("checkbox", name=re.compile("^Only of"))
        expect(only).to_be_checked()
        expect(only).to_have_value(id)
        expect(records).to_have_count(3)
        assert window.trouble == []
