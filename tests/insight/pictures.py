"""Draws the pictures of findings in the docs: ``python -m tests.insight.pictures``.

Each shows the first sentence of a page, and the finding below it, of a recorded workload.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import requests
from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM
from tests.browser.fixtures.tape import load
from tests.insight.workloads.ask import page_of, replayed
from tests.insight.workloads.kinds import KINDS, TAPES
from tests.service_process import ServiceProcess

IMAGES = Path(__file__).parents[2] / "docs" / "images"

#: The workloads that are shown, by different families of rules.
SHOWN = ("tiny_tasks", "spilling", "out_of_memory", "straggler", "idle_gone")

#: What is cut out of a page: from its heading to the end of its first finding.
_AREA = """() => {
    const top = document.querySelector("h1").getBoundingClientRect();
    const last = document.querySelector("ul.findings > li").getBoundingClientRect();
    const main = document.querySelector("main").getBoundingClientRect();
    return [main.x, top.y - 2, main.width, last.bottom - top.y + 14];
}"""


def main() -> None:
    """Draw all of them."""
    with (
        tempfile.TemporaryDirectory(prefix="pictures-") as folder,
        ServiceProcess(Path(folder)) as service,
        sync_playwright() as playwright,
    ):
        chromium = next(path for path in CHROMIUM if Path(path).exists())
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in SHOWN:
            workspace = f"picture-{name.replace('_', '-')}"
            subject = replayed(service, name, load(f"{name}.2", TAPES), workspace)
            session = requests.Session()
            token = service.token(workspace=workspace)
            session.post(f"{service.url}/sign-in", data={"token": token}, timeout=30)
            context = browser.new_context(
                viewport={"width": 900, "height": 900}, device_scale_factor=1.5
            )
            for cookie in session.cookies:
                context.add_cookies(
                    [{"name": cookie.name, "value": str(cookie.value), "url": service.url}]
                )
            page = context.new_page()
            page.goto(f"{service.url}{page_of(subject)}")
            x, y, width, height = page.evaluate(_AREA)
            rule = KINDS[name].cause
            file = IMAGES / f"finding-{rule}.png"
            page.screenshot(path=file, clip={"x": x, "y": y, "width": width, "height": height})
            print(file.name, file.stat().st_size, page.inner_text("p.verdict"))
            context.close()


if __name__ == "__main__":
    main()
