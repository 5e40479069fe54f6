from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench.__main__ import bench
from tests.stack import build
from tests.stack.conftest import built

pytestmark = pytest.mark.slow


def test_the_stack_is_measured_against_the_services_own_tables(
    otelcol: Path, tmp_path: Path
) -> None:
    built(build.INFLUXDB1)
    record = tmp_path / "figures.json"
    arguments = ["stack", "--rounds", "4", "--seconds", "0.3", "--json", str(record)]

    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)

    assert result.exit_code == 0, result.output
    assert "≤ 0.83" in result.stdout
    rates = json.loads(record.read_text(encoding="utf-8"))["stack"]["points per second"]
    assert {len(found) for found in rates.values()} == {1}
