"""What a team that has only Prometheus sees: OTLP from the scheduler, without a service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, wait

from daskscope import names
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.patience import START_PATIENCE, wait_until
from tests.stack import build
from tests.stack.conftest import built
from tests.stack.prometheus import Prometheus

pytestmark = pytest.mark.slow

TASKS, FAILED = 12, 3

#: What UCUM's units are in Prometheus' names.
_UNITS = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}


def load(number: int) -> int:
    time.sleep(0.01)
    return number


def fail(number: int) -> None:
    raise ValueError(number)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus after a cluster whose work was over within its first interval."""
    program = built(build.PROMETHEUS)
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with Prometheus(program, folder) as prometheus:
        settings = {
            "DASK_DASKSCOPE__OTLP__ONLY": "true",
            "DASK_DASKSCOPE__INTERVAL": "3s",
            "DASK_DASKSCOPE__NAME": "nightly",
            "DASK_DASKSCOPE__TRACES__TRANSMIT": "false",
            "DASK_DASKSCOPE__LOGS__TRANSMIT": "false",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": prometheus.endpoint,
        }
        with (
            scheduler_process("--preload", "daskscope", **settings) as scheduler,
            worker_process(scheduler.address),
            Client(scheduler.address) as client,
        ):
            client.wait_for_workers(1, timeout=START_PATIENCE)
            done = client.map(load, range(TASKS), pure=False)
            failed = client.map(fail, range(FAILED), pure=False)
            wait([*done, *failed], timeout=START_PATIENCE)
            wait_until(
                lambda: prometheus.ask("sum(dask_task_completed_total)") == {(): TASKS + FAILED},
                what="the tasks in Prometheus",
            )
        yield prometheus


def test_the_work_of_the_first_interval_is_an_increase(prometheus: Prometheus) -> None:
    all_of_it = "over_time(dask_task_completed_total[1h])"
    grown = f"max_{all_of_it} - min_{all_of_it}"
    by = "dask_task_prefix, dask_task_outcome"
    assert prometheus.ask(f"sum by ({by}) ({grown}) > 0") == {
        ("finished", "load"): TASKS,
        ("erred", "fail"): FAILED,
    }


def test_durations_are_a_histogram_of_all_runs(prometheus: Prometheus) -> None:
    counts = prometheus.ask("sum by (dask_task_prefix) (dask_task_duration_seconds_count)")
    assert counts[("load",)] == TASKS
    seconds = prometheus.ask("sum by (dask_task_prefix) (dask_task_duration_seconds_sum)")
    assert TASKS * 0.01 <= seconds[("load",)] < TASKS
    slower = 'dask_task_duration_seconds_bucket{le="0.01",dask_task_prefix="load"}'
    assert prometheus.ask(f"sum({slower})") == {(): 0}


def test_metrics_have_the_names_and_units_of_the_docs(prometheus: Prometheus) -> None:
    known = set()
    for metric in names.METRICS:
        base = metric.name.replace(".", "_") + _UNITS.get(metric.unit, "")
        known |= {base, f"{base}_total", *(f"{base}_{part}" for part in ("bucket", "count", "sum"))}
    found = {name for name in prometheus.names() if name.startswith(("dask_", "daskscope_"))}
    assert found
    assert found <= known


def test_series_name_their_cluster(prometheus: Prometheus) -> None:
    clusters = prometheus.ask("count by (dask_cluster_name, service_name) (dask_worker_threads)")
    assert set(clusters) <= {("nightly", "dask")}
