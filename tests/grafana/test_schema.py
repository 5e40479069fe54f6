"""The dashboards are of the types that Grafana publishes: a field that is not theirs is an error.

Grafana itself is in no package registry; its types are, as ``@grafana/schema``.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from grafana.board import SCHEMA_VERSION
from grafana.boards import BOARDS
from grafana.build import HERE
from tests.grafana.npm import installed

GRAFANA_SCHEMA = "@grafana/schema@13.2.3"
TYPESCRIPT = "typescript@5.9.3"
TYPES = Path(__file__).with_name("schema.ts")

#: As strict as they come, but for the types' own imports, which want more packages.
OPTIONS = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"]
OPTIONS += ["--module", "esnext", "--moduleResolution", "bundler"]


def _complaints(folder: Path, dashboards: dict[str, str]) -> list[str]:
    """Return what the compiler says of ``dashboards``, JSON by name."""
    packages = installed(GRAFANA_SCHEMA, TYPESCRIPT) / "node_modules"
    (folder / "node_modules").symlink_to(packages)
    shutil.copy(TYPES, folder / "schema.ts")
    for name, text in dashboards.items():
        (folder / f"{name}.ts").write_text(
            "import type { OurDashboard } from './schema';\n"
            f"export const dashboard: OurDashboard = {text};\n",
            encoding="utf-8",
        )
    compiler = packages / "typescript" / "bin" / "tsc"
    node = shutil.which("node")
    assert node is not None
    files = [f"{name}.ts" for name in dashboards]
    checked = subprocess.run(
        [node, str(compiler), *OPTIONS, *files],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode in (0, 1, 2), checked.stderr
    return [line for line in checked.stdout.splitlines() if line and not line.startswith(" ")]


def test_the_dashboards_are_of_the_types_that_grafana_publishes(tmp_path: Path) -> None:
    committed = sorted((HERE / "dashboards").glob("*.json"))
    assert len(committed) == len(BOARDS)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in committed}

    assert _complaints(tmp_path, texts) == []


def test_a_field_that_is_not_grafanas_is_an_error(tmp_path: Path) -> None:
    text = (HERE / "dashboards" / "fleet.json").read_text(encoding="utf-8")
    wrong = {
        "option": text.replace('"colorMode": "none"', '"colourMode": "none"'),
        "choice": text.replace('"drawStyle": "line"', '"drawStyle": "wave"'),
        "dashboard": text.replace('"graphTooltip"', '"tooltip"', 1),
    }
    assert all(changed != text for changed in wrong.values())

    complaints = _complaints(tmp_path, wrong)

    assert {line.partition(".ts")[0] for line in complaints} == set(wrong)


def test_the_version_is_the_one_that_grafana_writes() -> None:
    written = (
        installed(GRAFANA_SCHEMA, TYPESCRIPT)
        / "node_modules"
        / "@grafana"
        / "schema"
        / "dist"
        / "esm"
    )
    defaults = (written / "raw" / "dashboard" / "x" / "types.gen.mjs").read_text(encoding="utf-8")

    assert f"schemaVersion: {SCHEMA_VERSION}," in defaults
