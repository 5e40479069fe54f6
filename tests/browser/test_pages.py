"""Every page in a real browser: four widths, light and dark, with and without JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from daskscope_service import application
from daskscope_service.accounts import device_login, members
from daskscope_service.accounts.caller import Caller
from daskscope_service.application import close_app, create_app
from daskscope_service.db.engine import upgrade_database
from daskscope_service.settings import Settings
from tests.browser import axe
from tests.browser.gallery import Gallery
from tests.browser.watch import Site, Watched, watched

#: The last is the one at which the next page is opened.
WIDTHS = (2560, 768, 360, 1280)

#: Widths at which axe-core looks, and of which there may be pictures.
LOOKED_AT = (360, 1280)

#: What is no page of this service: ways to another, files; and what others open: reports
#: test_report.py, one job, and two of its runs, test_jobs.py.
NOT_PAGES = frozenset(
    {
        *("openid.begin", "openid.connect", "openid.finish"),
        *("report.cluster_file", "report.computation_file"),
        *("charts.data", "pages.static"),
        *("jobs_page.comparison", "jobs_page.job"),
        *("job_correction_page.question", "job_correction_page.undo_question"),
    }
)

PAGES = (
    "sign-in",
    "sign-in-link",
    "account",
    "shutdown",
    "mute",
    "mute-computation",
    "policies",
    "policies-owned",
    "policies-edit",
    "policies-empty",
    "prices",
    "prices-empty",
    "retention",
    "retention-owned",
    "thresholds",
    "notifications",
    "notifications-owned",
    "notifications-empty",
    "activate",
    "activate-asked",
    "tokens",
    "tokens-mine",
    "members",
    "invitation",
    "first-run",
    "missing",
    "overview",
    "clusters",
    "clusters-filtered",
    "clusters-none",
    "people",
    "people-cluster",
    "cluster-running",
    "cluster-stopped",
    "cluster-lost",
    "cluster-owned",
    "cluster-empty",
    "cluster-mixed",
    "stream",
    "stream-filtered",
    "stream-none",
    "stream-never",
    "computations",
    "computations-all",
    "computation-running",
    "computation-finished",
    "computation-erred",
    "computation-cancelled",
    "computation-lost",
    "computation-secretive",
    "computation-tiny",
    "report-cluster",
    "report-computation",
    "findings",
    "jobs",
    "jobs-empty",
    "corrections",
    "repeats",
    "repeats-empty",
    "exceptions",
    "exception",
    "profile",
    "profile-found",
    "profile-empty",
    "events",
    "events-empty",
    "logs",
    "logs-filtered",
    "logs-empty",
    "audit",
    "workspace",
)

#: Who looks at a page, where it is not who has the token of the workspace full of data.
SEEN_BY = {
    "sign-in": "nobody",
    "sign-in-link": "nobody",
    "invitation": "nobody",
    "first-run": "empty",
    "policies-empty": "empty",
    "notifications-empty": "empty",
    "prices-empty": "empty",
    "profile-empty": "empty",
    "events-empty": "empty",
    "jobs-empty": "empty",
    "repeats-empty": "empty",
    "logs-empty": "empty",
    "account": "user",
    "activate": "user",
    "activate-asked": "user",
    "tokens-mine": "user",
    "members": "owner",
    "shutdown": "owner",
    "mute": "owner",
    "mute-computation": "owner",
    "cluster-owned": "owner",
    "policies-owned": "owner",
    "policies-edit": "owner",
    "notifications-owned": "owner",
    "retention-owned": "owner",
    "audit": "owner",
}


def _path(site: Site, name: str) -> str:
    seeded = site.seeded
    kind, _, which = name.partition("-")
    match kind:
        case "sign":
            return "/sign-in?code=x" if which == "in-link" else "/sign-in"
        case "account":
            return "/account"
        case "policies" if which == "edit":
            return "/settings/policies/nights"
        case "policies" | "notifications" | "retention" | "prices" | "thresholds":
            return f"/settings/{kind}"
        case "shutdown":
            return f"/clusters/{seeded.running}/shutdown"
        case "mute" if which == "computation":
            cluster, id = seeded.computations["finished"]
            return f"/clusters/{cluster}/computations/{id}/mute?rule=tiny-tasks"
        case "mute":
            return f"/clusters/{seeded.running}/mute?rule=idle-cluster"
        case "activate":
            if which != "asked":
                return "/activate"
            begun = device_login.begin(site.service.engine, host="laptop", address="192.0.2.1")
            return f"/activate?code={begun.user_code}"
        case "members":
            return "/settings/members"
        case "invitation":
            who = Caller("maria", "team", "owner", None, False, "192.0.2.1")
            _, code = members.invite(site.service.engine, who, "li@example.org", "member")
            return f"/invitation?code={code}"
        case "tokens":
            return "/settings/tokens"
        case "audit" | "workspace":
            return f"/settings/{kind}"
        case "first" | "overview":
            return "/"
        case "clusters":
            query = {"filtered": "?tag=team&within=week&sort=cost", "none": "?user=no-one"}
            return f"/clusters{query.get(which, '')}"
        case "people":
            return "/people?show=cluster&weeks=13" if which else "/people"
        case "missing":
            return "/clusters/nowhere"
        case "cluster":
            other = {
                "empty": "Scheduler-idle",
                "mixed": "Scheduler-77b0",
                "owned": seeded.running,
            }
            id = other.get(which) or str(getattr(seeded, which))
            return f"/clusters/{id}?span=life"
        case "stream":
            of = f"/clusters/{seeded.lost if which == 'never' else seeded.stopped}/stream"
            query = {"filtered": "?prefix=parse_events&failed=yes", "none": "?prefix=no-such"}
            return f"{of}{query.get(which, '')}"
        case "computations":
            if which:
                return "/computations"
            return f"/clusters/{seeded.running}/computations"
        case "computation":
            cluster, id = seeded.computations[which]
            return f"/clusters/{cluster}/computations/{id}"
        case "report":
            cluster, id = seeded.computations["erred"]
            inside = f"/computations/{id}" if which == "computation" else ""
            return f"/clusters/{cluster}{inside}/report"
        case "findings":
            return "/findings?within=month"
        case "corrections":
            return "/jobs/corrections"
        case "repeats":
            return "/repeats"
        case "jobs":
            return "/jobs?sort=cost" if which else "/jobs"
        case "exceptions":
            return "/exceptions"
        case "profile":
            of = f"/profile?cluster={seeded.lost}"
            return {"found": f"{of}&find=parse&sort=total", "empty": "/profile"}.get(which, of)
        case "events" | "logs":
            return f"/{kind}?level=warning&text=e" if which == "filtered" else f"/{kind}"
        case _:
            return f"/exceptions/{seeded.fingerprints[0]}"


def page_routes() -> tuple[set[str], Callable[[str], str]]:
    """Return the endpoints of all pages, and what finds the endpoint of an address' path."""
    with TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        upgrade_database(settings)
        app = create_app(settings)
        close_app(app)
    addresses = app.url_map.bind("")
    blueprints = {page.blueprint.name for page in application.PAGES}
    pages = {
        rule.endpoint
        for rule in app.url_map.iter_rules()
        if "GET" in (rule.methods or ())
        and rule.endpoint.partition(".")[0] in blueprints
        and not rule.rule.endswith((".csv", ".json"))
    }
    return pages, lambda path: str(addresses.match(path)[0])


def test_every_page_is_looked_at(site: Site) -> None:
    pages, endpoint_of = page_routes()
    seen = {endpoint_of(_path(site, name).partition("?")[0]) for name in PAGES}
    assert pages - seen - NOT_PAGES == set()


OpenWindow = Callable[[str, bool], Watched]


@pytest.fixture(scope="module")
def window_of(browser: Browser, site: Site) -> Iterator[OpenWindow]:
    """Windows in which someone is signed in, by who that is and whether scripts run.

    Each stays open for the next page: to open one, and to read scripts and styles for the first
    time, takes longer than most pages.
    """
    sign_ins: dict[str, dict[str, Any]] = {
        "nobody": {},
        "user": {"user": site.user},
        "owner": {"user": site.owner},
        "token": {"token": site.token},
        "empty": {"token": site.empty_token},
    }
    with ExitStack() as opened:

        @cache
        def window_of(who: str, javascript: bool) -> Watched:
            window = watched(browser, site.service.url, **sign_ins[who], javascript=javascript)
            return opened.enter_context(window)

        yield window_of


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
@pytest.mark.parametrize("name", PAGES)
def test_page_shows_without_trouble(
    window_of: OpenWindow, site: Site, gallery: Gallery, name: str, javascript: bool
) -> None:
    window = window_of(SEEN_BY.get(name, "token"), javascript)
    page = window.page
    window.trouble.clear()
    page.emulate_media(color_scheme="light")
    page.goto(_path(site, name))
    if name == "activate-asked":
        page.get_by_role("button", name="Continue").click()
    if name == "missing":
        expect(page.get_by_role("heading", name="Not found")).to_be_visible()
        window.trouble[:] = [said for said in window.trouble if "404" not in said]
    if javascript:
        if name.startswith("cluster-"):
            page.wait_for_selector("#charts[data-drawn]")
        if name.startswith("stream") and name != "stream-never":
            page.wait_for_selector("#stream[data-drawn]")
        page.wait_for_load_state("networkidle")
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    script = "" if javascript else "-no-script"
    for width in WIDTHS:
        window.resize(width)
        assert window.overflow() == [], f"{width} pixels wide"
        if width in LOOKED_AT:
            gallery.add(page, f"{name}-{width}-light{script}")
            assert not javascript or axe.serious(page) == [], f"{width} pixels wide"
    # Colours are the stylesheet's, with and without a script; so is all that is dark.
    if javascript:
        page.emulate_media(color_scheme="dark")
        assert axe.low_contrast(page) == []
        for width in LOOKED_AT if gallery.folder else ():
            window.resize(width)
            gallery.add(page, f"{name}-{width}-dark")
    assert window.trouble == []
