"""Reports as whoever gets one sees them: opened from disk, with no network."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import axe
from tests.browser.gallery import Gallery
from tests.browser.watch import Site, watched

#: How a report is looked at: widths in pixels, and colours.
LOOKS: list[tuple[int, Literal["light", "dark"]]] = [
    (360, "light"),
    (360, "dark"),
    (1280, "light"),
    (1280, "dark"),
]


@pytest.mark.parametrize("code", ["false", "true"])
@pytest.mark.parametrize("what", ["cluster", "computation"])
def test_a_report_opens_from_disk_without_a_network(
    browser: Browser,
    site: Site,
    gallery: Gallery,
    tmp_path: Path,
    what: str,
    code: str,
) -> None:
    cluster, computation = site.seeded.computations["erred"]
    path = f"/clusters/{cluster}"
    path += f"/computations/{computation}" if what == "computation" else ""
    file = tmp_path / "report.html"
    with watched(browser, site.service.url, user=site.owner) as window:
        window.page.goto(path)
        verdict = window.page.locator(".verdict").inner_text()
        window.page.get_by_role("link", name="Report…").click()
        wanted = "With it" if code == "true" else "Without"
        with window.page.expect_download() as download:
            window.page.get_by_role("button", name=wanted).click()
        download.value.save_as(file)
        assert window.trouble == []

    with watched(browser, "http://nowhere.invalid") as window:
        window.page.context.set_offline(True)
        asked: list[str] = []
        window.page.on("request", lambda request: asked.append(request.url))
        window.page.goto(file.as_uri())
        for width, scheme in LOOKS:
            window.resize(width)
            window.page.emulate_media(color_scheme=scheme)
            gallery.add(window.page, f"report-{what}-{code}-{width}-{scheme}")
            assert window.overflow() == []
            assert axe.serious(window.page) == []
        assert asked == [file.as_uri()]
        assert window.trouble == []
        body = window.page.locator("body")
        expect(body).to_contain_text(f"by {site.owner['name']} from {site.service.url}")
        # Times go on while the page is open; what happened does not.
        assert verdict.split()[0] in window.page.locator(".verdict").inner_text()
        expect(window.page.locator("table").first).to_be_visible()
        expect(window.page.locator(".spark path, .bar rect").first).to_be_attached()
        expect(window.page.get_by_role("button")).to_have_count(0)
        told = "code in it" if code == "true" else "are left out"
        expect(body).to_contain_text(told)
        assert ("per_user.to_parquet" in window.page.content()) == (code == "true")
