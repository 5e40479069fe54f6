"""A real browser, and a service with a workspace full of data for it to look at."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from daskscope_service.accounts import users
from tests.browser.gallery import Gallery
from tests.browser.watch import Site
from tests.seed import seed
from tests.service_process import ServiceProcess

#: Debian's packages; Playwright brings none of its own here. The first has no window to it, so that
#: a page costs a third of the work.
CHROMIUM = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")

_ARGUMENTS = (
    "--no-sandbox",  # runs as root in containers
    "--disable-gpu",
    "--no-first-run",
    # Nothing may be asked of the network.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)


# Longer than a few of the pages' own updates, on a busy machine too.
expect.set_options(timeout=20_000)


# Not for the session: while Playwright runs, this thread has an event loop that runs, and tests of
# other packages could start none.
@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """Debian's Chromium without a window."""
    with _chromium(playwright, *CHROMIUM) as browser:
        yield browser


@pytest.fixture
def touch_browser(playwright: Playwright) -> Iterator[Browser]:
    """The Chromium that has windows: a finger moves no mouse in the other one."""
    with _chromium(playwright, CHROMIUM[-1]) as browser:
        yield browser


@contextmanager
def _chromium(playwright: Playwright, *paths: str) -> Iterator[Browser]:
    chromium = next(filter(shutil.which, paths), None)
    if chromium is None:
        reason = "Chromium is missing; on Debian: apt install chromium chromium-headless-shell"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    browser = playwright.chromium.launch(
        executable_path=chromium, headless=True, args=list(_ARGUMENTS)
    )
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service with the seeded workspace ``team`` and the empty workspace ``new``."""
    with ServiceProcess(tmp_path_factory.mktemp("browser")) as service:
        seeded = seed(service.engine, "team", time.time())
        user = {"name": "maria.lindqvist@analytics.example.org", "password": "not to be guessed"}
        maria = users.create(service.engine, **user, workspace="team", role="owner")
        users.set_role(service.engine, maria, "research-and-development", "viewer")
        owner = {"name": "tomas", "password": "not to be guessed"}
        users.create(service.engine, **owner, workspace="team", role="owner")
        yield Site(
            service=service,
            user=user,
            owner=owner,
            token=service.token(workspace="team"),
            empty_token=service.token(workspace="new"),
            seeded=seeded,
        )


@pytest.fixture(scope="package")
def gallery(pytestconfig: pytest.Config) -> Gallery:
    """Where pictures of all pages are left, with ``--pictures``."""
    folder = Path(__file__).with_name("gallery")
    if not pytestconfig.getoption("--pictures"):
        return Gallery(None)
    folder.mkdir(exist_ok=True)
    return Gallery(folder)
