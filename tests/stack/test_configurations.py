"""Every configuration that we ship, in every combination that its comments name, is valid."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.stack.collector import CONFIGURATIONS

DATABASES = ("influxdb1.yaml", "influxdb2.yaml")
COMBINATIONS = [
    ("agent.yaml",),
    *(
        ("base.yaml", database, *more)
        for database in DATABASES
        for more in ((), ("fan-out.yaml",), ("secure.yaml",), ("fan-out.yaml", "secure.yaml"))
    ),
]


def validate(otelcol: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(otelcol), "validate", *(f"--config={argument}" for argument in arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("files", COMBINATIONS, ids="+".join)
def test_a_combination_is_valid(otelcol: Path, tmp_path: Path, files: tuple[str, ...]) -> None:
    queue = f"yaml:extensions::file_storage::directory: {tmp_path}"
    told = validate(otelcol, *(str(CONFIGURATIONS / file) for file in files), queue)
    assert told.returncode == 0, told.stderr


def test_no_file_is_left_out() -> None:
    found = {file.name for file in CONFIGURATIONS.glob("*.yaml")}
    assert found == {file for files in COMBINATIONS for file in files} | {"builder.yaml"}


def test_a_slip_would_be_found(otelcol: Path) -> None:
    files = [str(CONFIGURATIONS / file) for file in ("base.yaml", "influxdb1.yaml")]
    told = validate(otelcol, *files, "yaml:exporters::influxdb::metrics_shema: none")
    assert told.returncode != 0
    assert "metrics_shema" in told.stderr


@pytest.mark.parametrize("file", sorted({file for files in COMBINATIONS for file in files}))
def test_what_waits_for_a_receiver_waits_on_disk_and_for_as_long_as_it_takes(file: str) -> None:
    """Tests of outages, which are short, cannot see after how long an exporter gives up."""
    told = yaml.safe_load((CONFIGURATIONS / file).read_text(encoding="utf-8"))
    for name, exporter in told.get("exporters", {}).items():
        if name == "prometheus":
            continue  # it is asked, and sends nothing
        retry = exporter["retry_on_failure"]
        assert (retry.get("enabled"), retry.get("max_elapsed_time")) == (True, "0s"), name
        assert exporter["sending_queue"].get("storage") == "file_storage", name
