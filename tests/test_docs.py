from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from daskscope.defaults import leaves
from daskscope.explanation.report import SWITCHES

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_to_a_heading(page: Path) -> None:
    links = re.findall(
        r"(?<!!)\[[^\]]*\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")
    )
    inside = [(page.parent / file if file else page, at) for file, at in links if "://" not in file]

    assert [(file.name, at) for file, at in inside if at not in _anchors(file)] == []


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_long_modules_say_why_they_are_not_split() -> None:
    """CONTRIBUTING.md, house style 2: tables are exempt."""
    tables = {"protocol", "api_types", "names", "secret_patterns", "schema", "settings"}
    modules = [*(ROOT / "exporter").rglob("*.py"), *(ROOT / "service").rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in modules}
    long = [path for path, text in texts.items() if text.count("\n") > 400]

    assert long
    assert [
        path.name
        for path in long
        if path.stem not in tables
        and "\nOver 400 lines: " not in (ast.get_docstring(ast.parse(texts[path])) or "")
    ] == []


def test_values_are_named_by_what_they_hold() -> None:
    """CONTRIBUTING.md, style: not by how they came."""
    named: set[str] = set()
    for folder in ("exporter", "service", "grafana"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                # Of variables, arguments and keywords, and of classes and functions.
                names = (getattr(node, kind, None) for kind in ("id", "arg", "name"))
                name = next((one for one in names if isinstance(one, str)), "")
                if name.strip("_").lower() in ("found", "told", "wish"):
                    named.add(f"{path.name}: {name}")
    assert named == set()


def test_no_text_advises_to_install_a_package_of_that_name_from_an_index() -> None:
    """It would be somebody else's: daskscope is in none. With a path, pip takes what is there."""
    texts = [*PAGES, *(ROOT / "exporter").rglob("*.py"), *(ROOT / "service").rglob("*.py")]
    advice = re.compile(r"pip install [\"'\\]*daskscope")

    assert [path.name for path in texts if advice.search(path.read_text(encoding="utf-8"))] == []


def test_documented_modules_are_there() -> None:
    """The map in docs/architecture.md names modules by path; each must exist."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:exporter|service|tests|docs)/[\w./-]+)`", text))

    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_the_architecture_names_every_room() -> None:
    """Each module and folder that has a layer in pyproject.toml is in a table of the page."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = [ROOT / "exporter" / "daskscope", ROOT / "service" / "daskscope_service"]
    folders = [packages[0] / name for name in ("observe", "otlp")]
    rooms = [
        str(path.relative_to(ROOT))
        for parent in (*packages, *folders)
        for path in sorted(parent.iterdir())
        if path.name[0] not in "_." and (path.is_dir() or path.suffix == ".py")
    ]

    assert rooms
    assert [room for room in rooms if f"`{room}`" not in text and f"`{room}/" not in text] == []


def test_the_page_on_privacy_names_every_setting_that_governs_what_leaves() -> None:
    """A new setting is explained there, or stands here as one that changes nothing of it."""
    text = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    another = {
        "name",
        "workspace",
        "otlp.histogram",
        "idle.timeout",
        "idle.grace",
        "spool.max-bytes",
    }
    settings = [path for path, _ in leaves() if path not in another]

    assert [path for path in settings if f"`{path}`" not in text] == []


def test_the_page_on_privacy_holds_a_row_for_every_switch_that_is_explained() -> None:
    text = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (`.+?) \|", text)

    assert [name for name, _ in SWITCHES if not any(f"`{name}`" in row for row in rows)] == []
