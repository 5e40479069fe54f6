"""The page of a job, with a history of weeks, at all widths, light and dark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, expect

from daskscope.protocol import ProfileLine
from tests.browser import axe
from tests.browser.gallery import Gallery
from tests.browser.test_pages import LOOKED_AT, WIDTHS
from tests.browser.watch import Site, Watched, watched
from tests.service.beats import ENVIRONMENT
from tests.service.job_history import EDITED, Place
from tests.service.people import PASSWORD, make_user

#: What workers have since the change.
NEWER = replace(ENVIRONMENT, packages={"dask": "2026.9.0", "distributed": "2026.8.0"})

LINES = tuple(
    ProfileLine("/home/ada/run.py", function, line, f"    {function}()")
    for line, function in enumerate(("load", "clean", "parse", "guess"), 1)
)
#: What threads did: load calls clean and parse; since the change, parse calls guess.
BEFORE = {"seconds": 200.0, "lines": LINES, "parent": (-1, 0, 0), "line": (0, 1, 2)}
BEFORE |= {"samples": (100, 60, 40)}
AFTER = {"seconds": 340.0, "lines": LINES, "parent": (-1, 0, 0, 2), "line": (0, 1, 2, 3)}
AFTER |= {"samples": (170, 60, 110, 70)}


@pytest.fixture(scope="module")
def place(site: Site) -> Place:
    """A job that became slower, and one of a single run."""
    place = Place(site.service)
    chance = random.Random(5)
    for day in range(24):
        slow = day >= 17
        place.run(
            (190 if slow else 120) * chance.uniform(0.96, 1.04),
            25 - day,
            user="ada" if day % 3 else "bob",
            spans=("nightly", "load"),
            cluster={"environment": NEWER} if slow else None,
            profile=AFTER if slow else BEFORE,
            **({"code": EDITED} if slow else {}),
            **({"status": "erred", "erred": 1} if day == 9 else {}),
        )
    place.run(4, 1)
    place.jobs(runs=25)
    return place


@pytest.fixture(params=[True, False], ids=["script", "no-script"])
def window(
    browser: Browser, site: Site, place: Place, request: pytest.FixtureRequest
) -> Iterator[Watched]:
    url, token = site.service.url, place.token
    with watched(browser, url, token=token, user=None, javascript=request.param) as window:
        yield window


def look(window: Watched, gallery: Gallery, name: str) -> None:
    """Look at the page at all widths, light and dark."""
    script = window.scripts
    for width in WIDTHS:
        window.resize(width)
        assert window.overflow() == [], f"{width} pixels wide"
        if width in LOOKED_AT and script:
            gallery.add(window.page, f"{name}-{width}-light")
            assert axe.serious(window.page) == [], f"{width} pixels wide"
    if script:
        window.page.emulate_media(color_scheme="dark")
        for width in LOOKED_AT:
            window.resize(width)
            gallery.add(window.page, f"{name}-{width}-dark")
        assert axe.low_contrast(window.page) == []
    assert window.trouble == []


def test_a_job_shows_its_runs_over_time_and_when_it_changed(
    window: Watched, place: Place, gallery: Gallery
) -> None:
    page = window.page
    page.goto("/jobs?sort=change")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    look(window, gallery, "jobs-history")
    page.emulate_media(color_scheme="light")
    page.get_by_role("link", name="nightly / load").click()
    expect(page.locator(".verdict")).to_contain_text("longer than before")
    expect(page.locator(".dots circle")).to_have_count(24)
    expect(page.locator(".dots circle.failed")).to_have_count(1)
    expect(page.locator(".dots .level")).to_have_count(2)
    look(window, gallery, "job")
    page.get_by_role("link", name="Cost", exact=True).click()
    expect(page.locator(".dots circle")).to_have_count(24)


def test_two_runs_are_compared_from_the_page_of_their_job(
    window: Watched, place: Place, gallery: Gallery
) -> None:
    page = window.page
    page.goto("/jobs?sort=change")
    page.get_by_role("link", name="nightly / load").click()
    page.get_by_role("link", name="compare with the run before").click()
    expect(page.locator(".verdict")).to_contain_text("longer than the first")
    expect(page.locator(".steps tbody tr").first).to_contain_text("the first run")
    expect(page.locator(".diff .added").first).to_be_visible()
    graph = page.get_by_role("region", name="Flame graph of the difference")
    expect(graph.locator("svg.flame-more-2")).to_have_count(2)  # parse and guess
    expect(graph.locator("svg.flame-same text")).to_have_text("clean")
    look(window, gallery, "comparison")
    page.emulate_media(color_scheme="light")
    wide = graph.locator("svg.flame-same rect").bounding_box()
    page.get_by_role("link", name="Width: first run").click()
    expect(graph.get_by_text("guess")).to_have_count(0)  # it was not there
    wider = graph.locator("svg.flame-same rect").bounding_box()
    assert wide is not None
    assert wider is not None
    assert wider["width"] > 1.5 * wide["width"]
    page.get_by_role("link", name="The other way round").click()
    expect(page.locator(".verdict")).to_contain_text("less than the first")


@pytest.fixture
def owner(browser: Browser, site: Site, place: Place) -> Iterator[Watched]:
    user = make_user(site.service, {place.workspace: "member"})
    url, credentials = site.service.url, {"name": user.name, "password": PASSWORD}
    with watched(browser, url, user=credentials, javascript=True) as window:
        yield window


def test_a_member_sees_what_a_correction_will_do_does_it_and_undoes_it(
    owner: Watched, place: Place, gallery: Gallery
) -> None:
    page = owner.page
    page.goto("/jobs")
    page.get_by_role("link", name="nightly / load").click()
    page.get_by_role("link", name="Merge, split or name…").click()
    look(owner, gallery, "job-correct")
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Split…").click()
    expect(page.get_by_role("heading", name="Split it?")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text(
        "Its newest 24 runs become 2 jobs, of 16 and 8 runs"
    )
    look(owner, gallery, "job-correct-sure")
    page.emulate_media(color_scheme="light")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_label("Its name").fill("the nightly load")
    page.get_by_role("button", name="Name…").click()
    page.get_by_role("button", name="Name it").click()
    expect(page.get_by_role("heading", name="the nightly load")).to_be_visible()
    page.goto("/jobs/corrections")
    look(owner, gallery, "job-corrections-one")
    page.emulate_media(color_scheme="light")
    page.get_by_role("link", name="Undo…").click()
    look(owner, gallery, "job-correction-undo")
    page.get_by_role("button", name="Undo it").click()
    expect(page.get_by_text("There are none.")).to_be_visible()
