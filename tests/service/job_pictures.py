"""Draws the pictures of docs/jobs.md: ``python -m tests.service.job_pictures``.

The job and the comparison are made of heartbeats that this sends. The budget is what pytest writes
of a real computation.
"""

from __future__ import annotations

import html
import random
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import CHROMIUM
from tests.service.beats import ENVIRONMENT
from tests.service.job_history import EDITED, Place
from tests.service_process import ServiceProcess

IMAGES = Path(__file__).parents[2] / "docs" / "images"

#: What workers have since the change.
_NEWER = replace(ENVIRONMENT, packages={"dask": "2026.9.0", "distributed": "2026.8.0"})

#: What is cut out of a page: from its heading to the end of ``last``.
_AREA = """last => {
    const top = document.querySelector("h1").getBoundingClientRect();
    const end = document.querySelector(last).getBoundingClientRect();
    const main = document.querySelector("main").getBoundingClientRect();
    return [main.x, top.y - 2, main.width, end.bottom - top.y + 14];
}"""

_TEST = """
import pytest
from distributed import Client, LocalCluster
from report import report

@pytest.fixture(scope="module")
def client():
    with LocalCluster(n_workers=2, dashboard_address=":0") as cluster, Client(cluster) as client:
        yield client

@pytest.mark.daskscope_budget(seconds=30, tasks=100)
def test_report(client):
    report()
"""
_REPORT = """
import dask.array

def report():
    return dask.array.ones(1_000_000, chunks=5_000).mean().compute()
"""


def main() -> None:
    """Draw all of them."""
    with (
        tempfile.TemporaryDirectory(prefix="pictures-") as folder,
        ServiceProcess(Path(folder)) as service,
        sync_playwright() as playwright,
    ):
        place = Place(service)
        runs = _history(place)
        [job] = [one for one in place.jobs(runs=len(runs)) if one["runs"] == len(runs)]
        chromium = next(path for path in CHROMIUM if Path(path).exists())
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        _draw(browser, place, f"/jobs/{job['id']}", "figure.dots", "job")
        a, b = runs[15], runs[18]
        _draw(browser, place, f"/comparisons?a={a}&b={b}", "table.steps", "comparison")
        _draw_text(browser, _pytest_says(Path(folder)), "budget")


def _history(place: Place) -> list[str]:
    """Send a job that became slower; return the ids of its runs, oldest first."""
    chance = random.Random(5)
    ids = []
    for day in range(24):
        slow = day >= 17
        seconds = (190 if slow else 120) * chance.uniform(0.96, 1.04)
        more: dict[str, Any] = {"code": EDITED, "cluster": {"environment": _NEWER}} if slow else {}
        ids.append(place.run(seconds, 25 - day, spans=("nightly", "load"), **more))
    return ids


def _draw(browser: Browser, place: Place, path: str, last: str, name: str) -> None:
    context = browser.new_context(viewport={"width": 900, "height": 1400}, device_scale_factor=1.5)
    for cookie in place.session.cookies:
        context.add_cookies(
            [{"name": cookie.name, "value": str(cookie.value), "url": place.service.url}]
        )
    page = context.new_page()
    page.goto(f"{place.service.url}{path}")
    x, y, width, height = page.evaluate(_AREA, last)
    file = IMAGES / f"{name}.png"
    page.screenshot(
        path=file, full_page=True, clip={"x": x, "y": y, "width": width, "height": height}
    )
    print(file.name, file.stat().st_size, page.inner_text("p.verdict"))
    context.close()


def _pytest_says(folder: Path) -> str:
    """Run a test that exceeds its budget; return what pytest writes, without paths."""
    (folder / "report.py").write_text(_REPORT)
    (folder / "test_report.py").write_text(_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--show-capture=no"]
    ended = subprocess.run(
        [*command, "test_report.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return f"$ pytest -q test_report.py\n{ended.stdout.replace(str(folder) + '/', '')}"


def _draw_text(browser: Browser, text: str, name: str) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 600}, device_scale_factor=1.5)
    style = "font: 13px/1.5 monospace; padding: 12px; margin: 0; display: inline-block"
    page.set_content(f'<pre style="{style}">{html.escape(text)}</pre>')
    file = IMAGES / f"{name}.png"
    page.locator("pre").screenshot(path=file)
    print(file.name, file.stat().st_size)
    page.close()


if __name__ == "__main__":
    main()
