"""The stack's programs, built once, and a real run whose telemetry went through all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service_process import ServiceProcess
from tests.stack import build
from tests.stack.clusters import Two, second_cluster
from tests.stack.collector import Collector, into
from tests.stack.influxdb import InfluxDB, Major
from tests.stack.run import Run, run_on

#: Seconds of a test here: the first one may have to build, on a machine that is busy.
_PATIENCE = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the first test here the time that a build takes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(_PATIENCE))


def built(program: build.Program) -> Path:
    """Return the executable, or skip the test where it cannot be built; not under CI."""
    missing = build.missing_compilers(program)
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{program.name} {program.version} needs {' and '.join(missing)} to be built")
    return build.built(program, print)


@pytest.fixture(scope="session")
def otelcol() -> Path:
    return built(build.COLLECTOR)


@pytest.fixture(scope="session", params=[1, 2], ids=["influxdb1", "influxdb2"])
def major(request: pytest.FixtureRequest) -> Major:
    found: Major = request.param
    return found


@pytest.fixture(scope="session")
def influxd(major: Major) -> Path:
    return built({1: build.INFLUXDB1, 2: build.INFLUXDB2}[major])


@pytest.fixture
def influxdb(major: Major, influxd: Path, tmp_path: Path) -> Iterator[InfluxDB]:
    """An empty one, of the test's own."""
    with InfluxDB(major, influxd, tmp_path / "influxdb") as database:
        yield database


@pytest.fixture(scope="session")
def run(
    major: Major, influxd: Path, otelcol: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """A cluster that did some of everything, and is gone."""
    folder = tmp_path_factory.mktemp(f"stack{major}")
    with (
        InfluxDB(major, influxd, folder / "influxdb") as database,
        ServiceProcess(folder / "service") as service,
    ):
        environment = {**database.for_collector, "TRACE_PERCENT": "100", "TRACE_WAIT": "1s"}
        for signal in ("METRICS", "TRACES", "LOGS"):
            environment[f"{signal}_ENDPOINT"] = service.url
            environment[f"{signal}_AUTHORIZATION"] = f"Bearer {service.token()}"
        files = ["base.yaml", into(database), "fan-out.yaml"]
        with Collector(otelcol, folder / "collector", files, environment) as collector:
            yield run_on(collector, database, service, folder)


@pytest.fixture(scope="session")
def reader(run: Run) -> Iterator[ServiceProcess]:
    """A second service on the same database, that reads from InfluxDB what is there."""
    with ServiceProcess(
        run.service.data_dir,
        influxdb_url=run.database.url,
        influxdb_token=run.database.token,
    ) as service:
        yield service


@pytest.fixture(scope="session")
def two(run: Run, otelcol: Path, tmp_path_factory: pytest.TempPathFactory) -> Two:
    """That cluster and another person's, of a workspace that the service is not to hear of."""
    environment = {**run.database.for_collector, "TRACE_PERCENT": "100", "TRACE_WAIT": "1s"}
    folder = tmp_path_factory.mktemp("other")
    with Collector(otelcol, folder, ["base.yaml", into(run.database)], environment) as collector:
        second = second_cluster(collector, run.database)
        collector.drain()
    return Two(run.cluster, second, run.since, run.database)
