"""Pages that stay open: they follow what happens, and leave alone what the reader does."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import insert

from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.browser.watch import Site, watched
from tests.service.beats import make_beat, make_cluster, post


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
def test_a_first_cluster_arrives_by_itself(browser: Browser, site: Site, javascript: bool) -> None:
    workspace = f"arrival-{javascript}"
    token = site.service.token(workspace=workspace)
    with watched(browser, site.service.url, token=token, javascript=javascript) as window:
        window.page.goto("/")
        expect(
            window.page.get_by_role("heading", name="No cluster has reported yet")
        ).to_be_visible()
        expect(window.page.get_by_text(f"token create --workspace {workspace}")).to_be_visible()
        assert post(site.service.url, token, make_beat(make_cluster(name="the-first"))).ok
        expect(window.page.get_by_role("link", name="the-first").first).to_be_visible()
        assert window.trouble == []


def test_an_update_keeps_scroll_focus_and_what_was_opened(browser: Browser, site: Site) -> None:
    cluster, id = site.seeded.computations["running"]
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{cluster}/computations/{id}")
        page.locator("#frame-1 summary").click()
        page.locator("#frame-2 summary").click()
        page.locator("#frame-1 summary").focus()
        page.mouse.wheel(0, 300)
        page.wait_for_function("scrollY > 100")
        scrolled = page.evaluate("scrollY")
        before = page.locator("#updated").inner_text()
        expect(page.locator("#updated")).not_to_have_text(before)
        assert page.evaluate("scrollY") == scrolled
        assert page.evaluate("document.activeElement.closest('details').id") == "frame-1"
        expect(page.locator("#frame-1")).to_have_attribute("open", "")
        expect(page.locator("#frame-2")).not_to_have_attribute("open", "")
        assert window.trouble == []


def test_charts_live_through_updates_and_are_redrawn(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        page = window.page
        page.goto(f"/clusters/{site.seeded.running}")
        page.wait_for_selector("#charts[data-drawn]")
        assert page.locator("#charts canvas").count() == 7
        drawn = page.get_attribute("#charts", "data-drawn")
        before = page.locator("#updated").inner_text()
        expect(page.locator("#updated")).not_to_have_text(before)
        expect(page.locator("#charts")).not_to_have_attribute("data-drawn", drawn or "")
        assert page.locator("#charts canvas").count() == 7
        assert window.trouble == []


@pytest.mark.parametrize("script", [True, False])
def test_charts_of_a_long_time_say_what_their_points_tell_of(
    browser: Browser, site: Site, script: bool
) -> None:
    name = f"long-{script}"
    token, now = site.service.token(workspace=name), time.time()
    cluster = make_cluster(name, started_at=now - 30 * 3600)
    assert post(site.service.url, token, make_beat(cluster)).ok
    series = {"workspace": name, "cluster": name, "metric": "dask.worker.count", "unit": "1"}
    series |= {"field": "value", "kind": "gauge", "attributes": '{"dask.worker.state":"idle"}'}
    with writing(site.service.engine) as connection:
        made = insert(schema.series).values(series).returning(schema.series.c.id)
        id = connection.execute(made).scalar_one()
        times = [int(1000 * (now - 60 * n)) for n in range(30 * 60)]
        points = [{"series": id, "time": at, "value": 1.0} for at in times]
        connection.execute(insert(schema.point), points)
    with watched(browser, site.service.url, token=token, javascript=script) as window:
        for span, visible in (("life", True), ("hour", False)):
            window.page.goto(f"/clusters/{name}?span={span}")
            if script:
                window.page.wait_for_selector("#charts[data-drawn]")
            note = window.page.get_by_text("the last 12 measurements in its step")
            expect(note).to_be_visible(visible=visible)
        assert window.trouble == []


def test_an_ended_session_leads_to_the_sign_in_page(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        window.page.goto("/")
        window.page.context.clear_cookies()
        window.page.wait_for_url("**/sign-in?next=*")
        window.page.get_by_text("With a token instead").click()
        window.page.get_by_label("Token").fill(site.token)
        window.page.get_by_role("button", name="Sign in with the token").click()
        expect(window.page.get_by_role("heading", name="Overview")).to_be_visible()
        assert window.trouble == []


def test_a_user_signs_in_chooses_a_workspace_and_signs_out_everywhere(
    browser: Browser, site: Site
) -> None:
    with watched(browser, site.service.url) as window:
        window.page.goto("/exceptions")
        window.page.get_by_label("Name").fill(site.user["name"])
        window.page.get_by_label("Password").fill(site.user["password"])
        window.page.get_by_role("button", name="Sign in", exact=True).click()
        expect(window.page.get_by_role("heading", name="Exceptions")).to_be_visible()
        window.page.get_by_label("Workspace").select_option("team")
        window.page.get_by_role("button", name="Switch").click()
        expect(window.page.get_by_role("heading", name="Overview")).to_be_visible()
        window.page.get_by_role("link", name=site.user["name"]).click()
        expect(window.page.get_by_text("You are an owner of the workspace team.")).to_be_visible()
        window.page.get_by_role("button", name="Sign out everywhere").click()
        expect(window.page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert window.trouble == []


def test_an_old_page_says_so_when_the_service_is_away(browser: Browser, site: Site) -> None:
    with watched(browser, site.service.url, token=site.token) as window:
        window.page.goto("/")
        window.page.route("**/*", lambda route: route.abort())
        expect(window.page.get_by_text("this may be out of date")).to_be_visible()
        window.page.unroute("**/*")
        expect(window.page.get_by_text("this may be out of date")).to_be_hidden()


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
def test_a_reader_gets_from_the_clusters_to_a_traceback(
    browser: Browser, site: Site, javascript: bool
) -> None:
    with watched(browser, site.service.url, token=site.token, javascript=javascript) as window:
        page = window.page
        page.goto("/clusters")
        page.locator(f"#cluster-{site.seeded.running}").get_by_role(
            "link", name="features-nightly"
        ).click()
        page.get_by_role("row", name="erred").get_by_role("link").click()
        expect(page.get_by_text("could not convert string to float").first).to_be_visible()
        page.get_by_role("link", name="Where else it happened").first.click()
        expect(page.get_by_text("train-eu-west")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        page.goto("/exceptions")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert window.trouble == []
