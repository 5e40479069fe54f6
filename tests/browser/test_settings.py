"""Settings, as an owner goes through them: with and without JavaScript, on two widths."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import insert

from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.retention import policy
from tests.browser.gallery import Gallery
from tests.browser.watch import Site, Watched, watched
from tests.service.beats import make_beat, make_cluster, make_status, post
from tests.service.people import PASSWORD, make_user
from tests.service.test_retention import DAY, ROWS


@pytest.fixture
def workspace() -> str:
    """The name of a workspace that is empty yet."""
    return f"settings-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=["script", "no-script"])
def window(
    browser: Browser, site: Site, workspace: str, request: pytest.FixtureRequest
) -> Iterator[Watched]:
    """The window of an owner of ``workspace``, on a narrow screen."""
    user = {"name": make_user(site.service, {workspace: "owner"}).name, "password": PASSWORD}
    javascript = request.param == "script"
    with watched(browser, site.service.url, user=user, width=360, javascript=javascript) as window:
        yield window


def picture(window: Watched, gallery: Gallery, name: str) -> None:
    """Leave pictures of the page as it is, narrow and wide, light and dark."""
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for width in (360, 1280):
        window.page.set_viewport_size({"width": width, "height": 900})
        for scheme in schemes:
            window.page.emulate_media(color_scheme=scheme)
            gallery.add(window.page, f"{name}-{width}-{scheme}")
        assert window.overflow() == []
    window.page.set_viewport_size({"width": 360, "height": 900})
    window.page.emulate_media(color_scheme="light")


def go(page: Page, *links: str) -> None:
    """Follow links of the main menu, then of that of the settings."""
    if (menu := page.get_by_role("button", name="Menu")).is_visible():
        menu.click()
    page.get_by_label("Main").get_by_role("link", name=links[0], exact=True).click()
    for link in links[1:]:
        page.get_by_label("Settings", exact=True).get_by_role("link", name=link).click()
        current = page.get_by_label("Settings", exact=True).locator("[aria-current]")
        expect(current).to_have_text(link)


def test_an_owner_sets_retention_and_is_asked_before_anything_goes(
    window: Watched, site: Site, workspace: str, gallery: Gallery
) -> None:
    (row,) = ROWS["log_record"]
    with writing(site.service.engine) as connection:
        old = row | {"workspace": workspace, "at": time.time() - 20 * DAY}
        connection.execute(insert(schema.log_record).values(old))
    page = window.page
    page.goto("/")
    go(page, "Settings", "Retention")
    picture(window, gallery, "settings-retention")
    logs = page.get_by_label("logs", exact=True)
    logs.fill("a week")
    page.get_by_role("button", name="Save").click()
    expect(logs).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#logs-wrong")).to_contain_text("Not a number of days")
    window.trouble[:] = [said for said in window.trouble if "400" not in said]
    picture(window, gallery, "settings-retention-wrong")
    logs.fill("14")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Remove older data?")).to_be_visible()
    expect(page.locator("main li")).to_contain_text("1 log record, about")
    picture(window, gallery, "settings-retention-sure")
    page.get_by_role("link", name="Cancel").click()
    expect(logs).to_have_value("")
    assert policy.periods_set(site.service.engine, workspace) == {}
    logs.fill("forever")
    page.get_by_role("button", name="Save").click()
    expect(logs).to_have_value("forever")
    assert policy.periods_set(site.service.engine, workspace) == {"logs": None}
    assert window.trouble == []


def test_an_owner_sets_prices_and_sees_what_clusters_come_to_by_them(
    window: Watched, site: Site, workspace: str, gallery: Gallery
) -> None:
    seconds = {"busy": 7200.0, "idle": 3600.0, "paused": 0.0}
    token = site.service.token(workspace=workspace)
    beat = make_beat(make_cluster(prices=None), status=make_status(worker_seconds=seconds))
    assert post(site.service.url, token, beat).ok
    page = window.page
    page.goto("/people")
    page.get_by_role("link", name="the workspace").click()
    expect(page.get_by_text("List prices, as none are set")).to_be_visible()
    picture(window, gallery, "settings-prices-list")
    page.get_by_role("button", name="Show no costs").click()
    expect(page.get_by_text("have no cost")).to_be_visible()
    thread, button = page.get_by_label("An hour of a thread"), page.get_by_role("button")
    thread.fill("0,5")
    button.get_by_text("Set them").click()
    expect(page.locator("#thread-wrong")).to_contain_text("such as 0.06")
    window.trouble[:] = [said for said in window.trouble if "400" not in said]
    picture(window, gallery, "settings-prices-wrong")
    thread.fill("0.5")
    button.get_by_text("Set them").click()
    expect(page.get_by_text("1.50 USD")).to_be_visible()
    picture(window, gallery, "settings-prices")
    page.goto("/clusters")
    expect(page.get_by_role("cell", name="1.50 USD")).to_be_visible()
    assert window.trouble == []


def test_a_finding_is_muted_on_its_page_and_heard_of_again(
    window: Watched, site: Site, workspace: str, gallery: Gallery
) -> None:
    token = site.service.token(workspace=workspace)
    cluster = make_cluster("idle-1", name="notebook", prices=None)
    status = make_status(threads=4, idle_seconds=7200.0, held_by={"clients": 1})
    assert post(site.service.url, token, make_beat(cluster, status=status)).ok
    page = window.page
    page.goto("/clusters/idle-1")
    picture(window, gallery, "finding-to-mute")
    page.get_by_role("link", name="Mute…").click()
    page.get_by_label("Why").fill("it waits for the night's data")
    page.get_by_label("For how long").select_option("30")
    picture(window, gallery, "mute-finding")
    page.get_by_role("button", name="Mute it").click()
    page.get_by_text("1 muted finding").click()
    expect(page.get_by_text("it waits for the night's data")).to_be_visible()
    picture(window, gallery, "finding-muted")
    page.get_by_role("button", name="Unmute").click()
    expect(page.get_by_role("link", name="Mute…")).to_be_visible()
    assert window.trouble == []


def test_the_first_page_leads_from_nothing_to_the_first_cluster(
    window: Watched, site: Site, gallery: Gallery
) -> None:
    page = window.page
    page.goto("/")
    picture(window, gallery, "first-run-nothing")
    page.get_by_role("link", name="make one here").click()
    page.get_by_label("What it is for").fill("the first")
    page.get_by_role("button", name="Make the token").click()
    token = page.locator("pre.secret").inner_text()
    go(page, "Overview")
    expect(page.get_by_text("1 to report with")).to_be_visible()
    # A program that has the token, and no cluster yet.
    assert post(site.service.url, token, b"{}").status_code == 400
    page.get_by_role("link", name="check now").click()
    expect(page.get_by_role("status")).to_contain_text("The token the first")
    picture(window, gallery, "first-run-token")
    assert post(site.service.url, token, make_beat(make_cluster(name="the-first"))).ok
    page.get_by_role("link", name="check now").click()
    expect(page.get_by_role("link", name="the-first").first).to_be_visible()
    assert window.trouble == []
