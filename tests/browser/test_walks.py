"""Walks as users take them, with and without a script: to every answer, and to what they change."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from daskscope_service.accounts import users
from tests.browser.test_pages import NOT_PAGES, page_routes
from tests.browser.watch import Site, watched
from tests.service.beats import make_beat, make_cluster, post

PASSWORD = "not to be guessed"

#: Pages to which something outside leads: no session, an invitation's link, ``daskscope login``.
FROM_OUTSIDE = frozenset({"account.sign_in_form", "members_page.invitation", "activation.activate"})

both = pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])


@contextmanager
def signed_in(
    browser: Browser, site: Site, workspace: str, *, javascript: bool
) -> Iterator[tuple[Page, Callable[[], list[str]]]]:
    """Sign a new owner of ``workspace`` in by the form; yield the page, and what went wrong."""
    name = f"owner-{uuid.uuid4().hex[:8]}"
    users.create(
        site.service.engine, name=name, password=PASSWORD, workspace=workspace, role="owner"
    )
    with watched(browser, site.service.url, javascript=javascript) as window:
        window.page.goto("/")
        sign_in(window.page, name)
        yield window.page, lambda: [*window.trouble, *map(str, window.overflow())]


def sign_in(page: Page, name: str) -> None:
    """Fill in the form that the page shows."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()


def go(page: Page, *links: str) -> None:
    """Follow links of the navigation, then of the settings' menu."""
    for menu, link in zip(("Main", "Settings"), links, strict=False):
        bar = page.get_by_role("navigation", name=menu, exact=True)
        bar.get_by_role("link", name=link, exact=True).click()
        expect(bar.get_by_role("link", name=link, exact=True)).to_have_attribute(
            "aria-current", "page"
        )


def test_every_page_is_at_most_three_clicks_from_the_overview(browser: Browser, site: Site) -> None:
    endpoints, endpoint_of = page_routes()
    opened = Counter[str]()
    # Links are there without scripts, which test_pages.py runs on all pages.
    with watched(browser, site.service.url, user=site.owner, javascript=False) as window:
        level = {"/": "/"}
        for _ in range(4):
            found: dict[str, str] = {}
            for path, address in level.items():
                endpoint = endpoint_of(path)
                # Of pages of one kind, some: not each leads as far as the others.
                if endpoint not in endpoints or opened[endpoint] == 5:
                    continue
                opened[endpoint] += 1
                window.page.goto(address)
                links: list[str] = window.page.eval_on_selector_all(
                    "a[href^='/']", "all => all.map((one) => one.getAttribute('href'))"
                )
                for link in links:
                    found.setdefault(urlsplit(link).path, link)
            level = found
        assert window.trouble == []
    assert endpoints - opened.keys() - NOT_PAGES - FROM_OUTSIDE == set()


@both
def test_each_question_is_answered_within_three_clicks(
    browser: Browser, site: Site, javascript: bool
) -> None:
    with watched(browser, site.service.url, token=site.token, javascript=javascript) as window:
        page = window.page

        def question(name: str) -> Page:
            page.goto("/")
            part = page.get_by_role("region", name=name)
            expect(part).to_be_visible()
            return page

        # Why is that cluster still running?
        question("What is running?").get_by_role("region", name="What is running?").get_by_role(
            "link", name="features-nightly"
        ).first.click()
        expect(page.locator(".verdict").first).to_contain_text(re.compile("runn|work|idle"))
        # Did my computation finish? What ran, and where in the code?
        page.get_by_role("region", name="Computations").get_by_role("link").first.click()
        expect(page.locator("h1 .status")).to_be_visible()
        expect(page.locator(".calling").first).to_be_visible()
        # Did any exceptions occur?
        failed = "What failed or was lost since yesterday?"
        question(failed).get_by_role("region", name=failed).get_by_role(
            "link", name="ValueError"
        ).first.click()
        expect(page.locator(".traceback").first).to_contain_text("could not convert")
        # What did it cost?
        spent = "What was spent this week?"
        question(spent).get_by_role("region", name=spent).get_by_role(
            "link", name="By person and week"
        ).click()
        expect(page.get_by_role("row", name=re.compile("maria.lindqvist")).first).to_be_visible()
        # What takes the time?
        took = "Where did the time of the last computations go?"
        question(took).get_by_role("region", name=took).get_by_role(
            "link", name="By line of code"
        ).click()
        expect(page.get_by_role("heading", name="Flame graph")).to_be_visible()
        assert window.trouble == []


@both
def test_who_is_invited_joins_in_a_browser_of_their_own(
    browser: Browser, site: Site, javascript: bool
) -> None:
    workspace, guest = f"walk-{uuid.uuid4().hex[:8]}", f"li-{uuid.uuid4().hex[:8]}@example.org"
    with signed_in(browser, site, workspace, javascript=javascript) as (page, trouble):
        go(page, "Settings", "Members")
        page.get_by_label("Name or e-mail address").fill(guest)
        page.get_by_label("Role", exact=True).select_option("viewer")
        page.get_by_role("button", name="Make an invitation").click()
        link = page.locator("pre.secret").inner_text()
        with watched(browser, site.service.url, javascript=javascript) as theirs:
            theirs.page.goto(link.strip())
            expect(theirs.page.get_by_text(workspace).first).to_be_visible()
            theirs.page.get_by_label("A password").fill(PASSWORD)
            theirs.page.get_by_role("button", name="Join it").click()
            expect(theirs.page.get_by_role("navigation", name="Main")).to_be_visible()
            expect(theirs.page.get_by_role("link", name=guest)).to_be_visible()
            assert theirs.trouble == []
        go(page, "Settings", "Members")
        expect(page.get_by_label(f"Role of {guest}")).to_have_value("viewer")
        assert trouble() == []


@both
def test_a_token_is_made_works_and_is_revoked(
    browser: Browser, site: Site, javascript: bool
) -> None:
    workspace = f"walk-{uuid.uuid4().hex[:8]}"
    with signed_in(browser, site, workspace, javascript=javascript) as (page, trouble):
        go(page, "Settings", "Tokens")
        page.get_by_label("What it is for").fill("nightly jobs")
        page.get_by_role("button", name="Make the token").click()
        token = page.locator("pre.secret").inner_text().strip()
        assert post(site.service.url, token, make_beat(make_cluster(name="nightly"))).ok
        go(page, "Clusters")
        expect(page.get_by_role("link", name="nightly", exact=True)).to_be_visible()
        go(page, "Settings", "Tokens")
        row = page.get_by_role("row", name="nightly jobs")
        row.get_by_role("button", name="Revoke").click()
        in_force = page.get_by_role("region", name="Tokens in force")
        expect(in_force.get_by_role("row", name="nightly jobs")).to_have_count(0)
        assert post(site.service.url, token, make_beat(make_cluster())).status_code == 401
        assert trouble() == []


@both
def test_a_program_that_asks_to_log_in_is_let_in(
    browser: Browser, site: Site, javascript: bool
) -> None:
    workspace = f"walk-{uuid.uuid4().hex[:8]}"
    login = f"{site.service.url}/api/v1/login"
    asked = requests.post(f"{login}/device", data={"host": "my-laptop"}, timeout=30).json()
    with signed_in(browser, site, workspace, javascript=javascript) as (page, trouble):
        page.goto("/activate")
        page.get_by_label("Code").fill(asked["user_code"])
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("my-laptop").first).to_be_visible()
        page.get_by_role("button", name="Allow").click()
        expect(page.get_by_role("heading", name="Allowed")).to_be_visible()
        answer = requests.post(
            f"{login}/token",
            data={
                "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
                "device_code": asked["device_code"],
            },
            timeout=30,
        )
        assert answer.json()["workspace"] == workspace
        page.get_by_role("link", name="Tokens").click()
        expect(page.get_by_role("row", name="my-laptop")).to_be_visible()
        assert trouble() == []


@both
def test_a_cluster_is_shut_down_with_a_reason_and_called_off(
    browser: Browser, site: Site, javascript: bool
) -> None:
    workspace = f"walk-{uuid.uuid4().hex[:8]}"
    token = site.service.token(workspace=workspace)
    cluster = make_cluster(name="to-be-closed")
    assert post(site.service.url, token, make_beat(cluster)).ok
    with signed_in(browser, site, workspace, javascript=javascript) as (page, trouble):
        for end in ("leave", "call off", "shut down"):
            page.goto("/")
            page.get_by_role("link", name="to-be-closed").first.click()
            page.get_by_role("link", name="Shut down…").click()
            if end == "leave":
                page.get_by_role("link", name="Cancel").click()
                expect(page.get_by_role("region", name="Shutdowns")).to_have_count(0)
                continue
            page.get_by_label("Why").fill("The night is over.")
            page.get_by_role("button", name="Shut it down").click()
            expect(page.get_by_text("The night is over.").first).to_be_visible()
            if end == "call off":
                page.get_by_role("button", name="Call it off").click()
                expect(page.get_by_text("called off").first).to_be_visible()
        told = post(site.service.url, token, make_beat(cluster, seq=2)).json()["commands"]
        assert "The night is over." in str(told)
        assert trouble() == []


@both
def test_an_idle_policy_is_set_changed_and_removed(
    browser: Browser, site: Site, javascript: bool
) -> None:
    workspace = f"walk-{uuid.uuid4().hex[:8]}"
    with signed_in(browser, site, workspace, javascript=javascript) as (page, trouble):
        go(page, "Settings", "Idle policies")
        page.get_by_label("Name").fill("nights")
        page.get_by_label("After how many minutes").fill("45")
        page.get_by_label("What to do").select_option("shutdown")
        page.get_by_role("button", name="Save").click()
        row = page.get_by_role("row", name=re.compile("nights.*45 min"))
        expect(row).to_be_visible()
        row.get_by_role("link").first.click()
        page.get_by_label("After how many minutes").fill("90")
        page.get_by_role("button", name="Save").click()
        row = page.get_by_role("row", name=re.compile("nights.*1 h 30"))
        row.get_by_role("button", name="Remove").click()
        expect(row).to_have_count(0)
        assert trouble() == []
