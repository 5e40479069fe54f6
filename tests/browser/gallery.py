"""Pictures of pages, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page


@dataclass(frozen=True, slots=True)
class Gallery:
    """A folder of pictures. Without a folder none are taken: each costs more than most tests."""

    folder: Path | None

    def add(self, page: Page, name: str) -> None:
        """Take a picture of the whole page as it is now."""
        if self.folder is not None:
            page.screenshot(path=self.folder / f"{name}.png", full_page=True)

    def add_print(self, page: Page, name: str) -> None:
        """Print the page."""
        if self.folder is not None:
            page.pdf(path=self.folder / f"{name}.pdf", format="A4")
