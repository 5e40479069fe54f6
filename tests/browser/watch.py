"""Opens pages and notes all that goes wrong while they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from playwright.sync_api import Browser, Page, Request, Response

from tests.seed import Seeded
from tests.service_process import ServiceProcess

#: How far the page is wider than the window, and what in it is to blame.
_OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  const wide = [...document.body.querySelectorAll("*")].filter(
    (e) => e.getBoundingClientRect().right > width + 1 && !e.closest(".scroll, pre, .code, .skip"));
  const over = document.documentElement.scrollWidth - width;
  return over > 0 ? [over, ...wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 120))] : [];
}"""


@dataclass(frozen=True, slots=True)
class Site:
    """A running service: tokens of a workspace full of data, and of one without any.

    ``user`` is the name and the password of a user of the first and of another, ``owner`` those of
    an owner of the first alone.
    """

    service: ServiceProcess
    user: dict[str, str]
    owner: dict[str, str]
    token: str
    empty_token: str
    seeded: Seeded


@dataclass(frozen=True, slots=True)
class Watched:
    """A page, and what went wrong on it so far."""

    page: Page
    trouble: list[str]
    scripts: bool = True

    def overflow(self) -> list[object]:
        """Return by how much the page is too wide, and because of what; [] where it is not."""
        found: list[object] = self.page.evaluate(_OVERFLOW)
        return found

    def resize(self, width: int) -> None:
        """Make the window ``width`` pixels wide, and wait until the page has followed."""
        self.page.set_viewport_size({"width": width, "height": 900})
        if self.scripts:  # charts hear of it by an observer, one frame later
            self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => "
                               "requestAnimationFrame(done)))")  # fmt: skip


@contextmanager
def watched(
    browser: Browser,
    url: str,
    *,
    token: str | None = None,
    user: dict[str, str] | None = None,
    width: int = 1280,
    scheme: Literal["light", "dark"] = "light",
    javascript: bool = True,
    touch: bool = False,
) -> Iterator[Watched]:
    """Open a window on the service at ``url``, signed in with ``user`` or ``token``, if given.

    With ``touch`` it is a phone's.
    """
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=javascript,
        has_touch=touch,
        is_mobile=touch,
        timezone_id="UTC",
    )
    context.set_default_timeout(20_000)
    trouble: list[str] = []

    def answered(response: Response) -> None:
        if response.status >= 400:
            trouble.append(f"{response.status} {response.url}")

    def failed(request: Request) -> None:
        # Aborted is what was still under way when the reader left the page.
        if request.failure != "net::ERR_ABORTED":
            trouble.append(f"{request.failure} {request.url}")

    try:
        form = user or ({"token": token} if token else {})
        if form:
            context.request.post("/sign-in", form={**form})
        page = context.new_page()
        page.on("console", lambda m: trouble.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("requestfailed", failed)
        page.on("response", answered)
        yield Watched(page, trouble, javascript)
    finally:
        context.close()
