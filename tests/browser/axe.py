"""What axe-core finds on a page: whom it keeps out who cannot see, point or tell colours apart."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from playwright.sync_api import Page

from tests.grafana.npm import installed

#: Licensed under MPL-2.0; installed into the user's cache, for tests alone.
PACKAGE = "axe-core@4.14.1"

_RUN = Path(__file__).with_name("axe_run.js").read_text(encoding="utf-8")

#: Looks that are good to read: of a text and of all that is around it, with their colours. To find
#: out takes more than all other rules, and most of a page looks like the one before.
_legible: set[int] = set()


@cache
def _source() -> str:
    path = installed(PACKAGE) / "node_modules" / "axe-core" / "axe.min.js"
    return path.read_text(encoding="utf-8")


def serious(page: Page) -> list[str]:
    """Return what is serious or critical on ``page`` as it is now: rule, reason and elements."""
    return _run(page, contrast_only=False)


def low_contrast(page: Page) -> list[str]:
    """Return which texts on ``page`` are hard to read against what is behind them, likewise."""
    return _run(page, contrast_only=True)


def _run(page: Page, *, contrast_only: bool) -> list[str]:
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(_source())
    found: list[str]
    found, legible = page.evaluate(_RUN, [contrast_only, list(_legible)])
    _legible.update(legible)
    return found
