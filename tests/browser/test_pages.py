"""Every page in a real browser: two widths, light and dark, with and without JavaScript."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.watch import Site, watched

PAGES = (
    "sign-in",
    "account",
    "shutdown",
    "policies",
    "policies-owned",
    "policies-empty",
    "notifications",
    "notifications-owned",
    "notifications-empty",
    "first-run",
    "missing",
    "clusters",
    "cluster-running",
    "cluster-stopped",
    "cluster-lost",
    "cluster-owned",
    "cluster-empty",
    "computations",
    "computation-running",
    "computation-finished",
    "computation-erred",
    "computation-cancelled",
    "computation-lost",
    "computation-secretive",
    "computation-tiny",
    "exceptions",
    "exception",
)


def _path(site: Site, name: str) -> str:
    seeded = site.seeded
    kind, _, which = name.partition("-")
    match kind:
        case "sign":
            return "/sign-in"
        case "account":
            return "/account"
        case "policies" | "notifications":
            return f"/{kind}"
        case "shutdown":
            return f"/clusters/{seeded.running}/shutdown"
        case "first" | "clusters":
            return "/"
        case "missing":
            return "/clusters/nowhere"
        case "cluster":
            other = {"empty": "Scheduler-idle", "owned": seeded.running}
            id = other.get(which) or str(getattr(seeded, which))
            return f"/clusters/{id}?span=life"
        case "computations":
            return f"/clusters/{seeded.running}/computations"
        case "computation":
            cluster, id = seeded.computations[which]
            return f"/clusters/{cluster}/computations/{id}"
        case "exceptions":
            return "/exceptions"
        case _:
            return f"/exceptions/{seeded.fingerprints[0]}"


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_page_shows_without_trouble(
    browser: Browser,
    site: Site,
    gallery: Path,
    name: str,
    width: int,
    scheme: Literal["light", "dark"],
    javascript: bool,
) -> None:
    token = {
        "sign-in": None,
        "first-run": site.empty_token,
        "policies-empty": site.empty_token,
        "notifications-empty": site.empty_token,
    }.get(name, site.token)
    with watched(
        browser,
        site.service.url,
        token=token,
        user={
            "account": site.user,
            "shutdown": site.owner,
            "cluster-owned": site.owner,
            "policies-owned": site.owner,
            "notifications-owned": site.owner,
        }.get(name),
        width=width,
        scheme=scheme,
        javascript=javascript,
    ) as window:
        window.page.goto(_path(site, name))
        if name == "missing":
            expect(window.page.get_by_role("heading", name="Not found")).to_be_visible()
            window.trouble[:] = [said for said in window.trouble if "404" not in said]
        if javascript and name.startswith("cluster-"):
            window.page.wait_for_selector("#charts[data-drawn]")
        window.page.wait_for_load_state("networkidle")
        script = "" if javascript else "-no-script"
        window.page.screenshot(
            path=gallery / f"{name}-{width}-{scheme}{script}.png", full_page=True
        )
        assert window.trouble == []
        assert window.overflow() == []
