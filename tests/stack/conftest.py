"""The stack's programs, built once, and a real run whose telemetry went through all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.service_process import ServiceProcess
from tests.stack import build
from tests.stack.asking import AskedOnce
from tests.stack.clusters import Two, second_cluster, send_finding
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


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(1, id="influxdb1"),
        pytest.param(2, id="influxdb2", marks=pytest.mark.slow),
    ],
)
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


@dataclass(frozen=True, slots=True)
class Runs:
    """What was made for each InfluxDB, kept to the end of the session.

    pytest ends a fixture whenever its parameter changes, which is twice in each file: so what takes
    long to make is kept by a fixture without parameters.
    """

    ends: ExitStack
    runs: dict[Major, Run]
    readers: dict[Major, ServiceProcess]
    pairs: dict[Major, Two]


@pytest.fixture(scope="session")
def _runs() -> Iterator[Runs]:
    with ExitStack() as ends:
        yield Runs(ends, {}, {}, {})


@pytest.fixture(scope="session")
def run(
    major: Major,
    influxd: Path,
    otelcol: Path,
    tmp_path_factory: pytest.TempPathFactory,
    _runs: Runs,
) -> Run:
    """A cluster that did some of everything, and is gone."""
    if major not in _runs.runs:
        folder = tmp_path_factory.mktemp(f"stack{major}")
        database = _runs.ends.enter_context(InfluxDB(major, influxd, folder / "influxdb"))
        service = _runs.ends.enter_context(ServiceProcess(folder / "service"))
        environment = {**database.for_collector, "TRACE_PERCENT": "100", "TRACE_WAIT": "1s"}
        for signal in ("METRICS", "TRACES", "LOGS"):
            environment[f"{signal}_ENDPOINT"] = service.url
            environment[f"{signal}_AUTHORIZATION"] = f"Bearer {service.token()}"
        files = ["base.yaml", into(database), "fan-out.yaml"]
        collector = Collector(otelcol, folder / "collector", files, environment)
        _runs.ends.enter_context(collector)
        _runs.runs[major] = run_on(collector, database, service, folder)
    return _runs.runs[major]


@pytest.fixture(scope="session")
def reader(major: Major, run: Run, _runs: Runs) -> ServiceProcess:
    """A second service on the same database, that reads from InfluxDB what is there."""
    if major not in _runs.readers:
        service = ServiceProcess(
            run.service.data_dir,
            influxdb_url=run.database.url,
            influxdb_token=run.database.token,
        )
        _runs.readers[major] = _runs.ends.enter_context(service)
    return _runs.readers[major]


@pytest.fixture(scope="session")
def two(
    major: Major,
    run: Run,
    otelcol: Path,
    tmp_path_factory: pytest.TempPathFactory,
    _runs: Runs,
) -> Two:
    """That cluster and another person's, of a workspace that the service is not to hear of."""
    if major not in _runs.pairs:
        environment = {**run.database.for_collector, "TRACE_PERCENT": "100", "TRACE_WAIT": "1s"}
        folder = tmp_path_factory.mktemp("other")
        with Collector(
            otelcol, folder, ["base.yaml", into(run.database)], environment
        ) as collector:
            second = second_cluster(collector, run.database)
            send_finding(collector, second)
            collector.drain()
        database = AskedOnce(run.database)
        _runs.pairs[major] = Two(run.cluster, second, run.since, time.time(), database)
    return _runs.pairs[major]
