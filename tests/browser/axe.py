"""What axe-core finds on a page: whom it keeps out who cannot see, point or tell colours apart."""

from __future__ import annotations

from functools import cache

from playwright.sync_api import Page

from tests.grafana.npm import installed

#: Licensed under MPL-2.0; installed into the user's cache, for tests alone.
PACKAGE = "axe-core@4.14.1"

_RUN = """async (only) => {
  const found = await axe.run({resultTypes: ["violations"], ...(only ? {runOnly: only} : {})});
  return found.violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.impact} ${one.id}: ${one.help}: `
      + one.nodes.slice(0, 4).map((node) => node.target.join(" ")).join(" | "));
}"""


@cache
def _source() -> str:
    path = installed(PACKAGE) / "node_modules" / "axe-core" / "axe.min.js"
    return path.read_text(encoding="utf-8")


def serious(page: Page) -> list[str]:
    """Return what is serious or critical on ``page`` as it is now: rule, reason and elements."""
    return _run(page, None)


def low_contrast(page: Page) -> list[str]:
    """Return which texts on ``page`` are hard to read against what is behind them, likewise."""
    return _run(page, ["color-contrast"])


def _run(page: Page, only: list[str] | None) -> list[str]:
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(_source())
    found: list[str] = page.evaluate(_RUN, only)
    return found
