"""``compose.yaml`` cannot be started here: it is read, and its parts are what the tests run."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from daskscope_service.server.process import check
from daskscope_service.settings import Settings, variable
from tests.stack import build
from tests.stack.collector import CONFIGURATIONS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]


def test_images_are_pinned_to_what_was_tested() -> None:
    images = {name: service.get("image", "") for name, service in SERVICES.items()}
    assert images["influxdb"] == f"influxdb:{build.INFLUXDB2.version}"
    version = build.COLLECTOR.version
    assert images["collector"] == f"otel/opentelemetry-collector-contrib:{version}"
    assert re.fullmatch(r"grafana/grafana:\d+\.\d+\.\d+", images["grafana"])


def test_the_services_image_holds_what_the_lock_names_by_its_hashes() -> None:
    build_file = SERVICES["service"]["build"]["dockerfile_inline"]
    assert "--require-hashes -r /source/requirements-service.lock" in build_file
    assert "--no-deps --no-build-isolation /source" in build_file
    pin = re.compile(r"^([\w.-]+==[^\s;]+).*\\\n    --hash=sha256:", re.MULTILINE)
    pinned, all_pinned = (
        set(pin.findall((ROOT / name).read_text(encoding="utf-8")))
        for name in ("requirements-service.lock", "requirements.lock")
    )
    assert pinned
    assert pinned <= all_pinned
    assert not {one for one in pinned if one.startswith(("pytest", "playwright", "mypy"))}


@pytest.mark.parametrize("name", SERVICES)
def test_a_part_may_do_no_more_than_its_work(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    # The one whose image has to become another user first.
    assert ("cap_add" in service) == (name == "influxdb")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and "CI" not in os.environ,
    reason="systemd is not installed",
)
def test_the_unit_for_systemd_exposes_little(tmp_path: Path) -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    unit = tmp_path / "daskscope.service"
    found = re.search(r"```ini\n(\[Unit\].*?)```", text, re.DOTALL)
    assert found
    unit.write_text(found[1], encoding="utf-8")

    # It asks no manager: the file is judged as it is. The threshold is in tenths.
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_no_secret_has_a_default_and_no_port_is_open_to_others() -> None:
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            if re.search(r"PASSWORD|TOKEN", name):
                assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", value), name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_all_have_a_health_check_but_the_collector_whose_image_cannot() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == {
        "collector"
    }
    assert "health_check" in (CONFIGURATIONS / "base.yaml").read_text(encoding="utf-8")


def test_what_is_mounted_is_there() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service["volumes"]]
    folders = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(folders) == 3
    assert all((ROOT / folder).is_dir() for folder in folders)
    provided = yaml.safe_load(
        (ROOT / "grafana/provisioning/dashboards/daskscope.yaml").read_text(encoding="utf-8")
    )
    assert f"./grafana/dashboards:{provided['providers'][0]['options']['path']}:ro" in mounts


def test_every_variable_is_one_that_is_read() -> None:
    read = {
        name
        for file in ("base.yaml", "influxdb2.yaml")
        for name in re.findall(r"\$\{env:(\w+)", (CONFIGURATIONS / file).read_text("utf-8"))
    }
    assert set(SERVICES["collector"]["environment"]) <= read
    settings = {variable(setting.name) for setting in dataclasses.fields(Settings)}
    assert set(SERVICES["service"]["environment"]) <= settings
    sources = ROOT / "grafana/provisioning/datasources/daskscope.yaml"
    asked = set(re.findall(r"\$\{(\w+)\}", sources.read_text(encoding="utf-8")))
    assert asked == {
        name for name in SERVICES["grafana"]["environment"] if name.startswith("DASKSCOPE_")
    }


def test_the_collector_takes_its_command_and_variables(otelcol: Path, tmp_path: Path) -> None:
    service = SERVICES["collector"]
    options = [option.replace("/etc/otelcol", str(CONFIGURATIONS)) for option in service["command"]]
    environment = {
        **service["environment"],
        "QUEUE_DIRECTORY": str(tmp_path),
        "INFLUXDB_TOKEN": "t",
    }
    told = subprocess.run(
        [str(otelcol), "validate", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr


def test_the_service_would_start_with_its_variables() -> None:
    service = SERVICES["service"]["environment"]
    check(Settings.from_environment(service | {"DASKSCOPE_INFLUXDB_TOKEN": "t"}))
