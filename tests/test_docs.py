from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def test_generated_pages_are_up_to_date() -> None:
    check = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]

    result = subprocess.run(check, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    links = re.findall(
        r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")
    )
    inside = [link for link in links if "://" not in link]

    assert [link for link in inside if not (page.parent / link).exists()] == []


def test_documented_modules_are_there() -> None:
    """The map in docs/architecture.md names modules by path; each must exist."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:exporter|service|tests|docs)/[\w./-]+)`", text))

    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
