"""The same questions, asked of InfluxDB and of the service's own tables, have the same answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from daskscope import names
from daskscope_service.telemetry.influx import InfluxSeries
from daskscope_service.telemetry.influx_rows import InfluxDatabase
from daskscope_service.telemetry.influxql import InfluxQL
from tests.ports import free_port
from tests.service.pages import words
from tests.service_process import ServiceProcess
from tests.stack.influxdb import DATABASE
from tests.stack.run import Run, owned_by
from tests.stack.sessions import api, browser

#: The run's currency is in no name, and InfluxDB keeps no units.
_NO_UNIT = {names.CLUSTER_COST, names.CLUSTER_IDLE_COST}


def ask(service: ServiceProcess, run: Run, metric: str, **more: str) -> list[dict[str, Any]]:
    answer = api(service).get(
        f"{service.url}/api/v1/series",
        params={
            "cluster": run.cluster,
            "metric": metric,
            "since": str(int(run.since)),
            "until": str(int(run.until) + 1),
            **more,
        },
        timeout=30,
    )
    assert answer.ok, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


@pytest.mark.parametrize("more", [{}, {"step": "5"}, {"rate": "true"}], ids=str)
@pytest.mark.parametrize("metric", names.METRICS, ids=lambda metric: metric.name)
def test_both_stores_answer_alike(
    run: Run, reader: ServiceProcess, metric: names.Metric, more: dict[str, str]
) -> None:
    own = ask(run.service, run, metric.name, **more)
    read = ask(reader, run, metric.name, **more)
    for one, other in zip(own, read, strict=True):
        if metric in _NO_UNIT:
            one["unit"] = other["unit"]
        assert {**one, "values": None} == {**other, "values": None}
        assert other["values"] == pytest.approx(one["values"])


def test_the_page_of_a_cluster_is_the_same(run: Run, reader: ServiceProcess) -> None:
    def drawn(service: ServiceProcess) -> list[str]:
        address = f"{service.url}/clusters/{run.cluster}?span=life"
        page = browser(service).get(address, timeout=30).text
        return re.findall('<svg class="spark".*?</svg>', words(page))

    own, read = drawn(run.service), drawn(reader)
    assert len(read) >= 4
    assert read == own


@pytest.fixture
def store(run: Run) -> Iterator[InfluxSeries]:
    influxdb = InfluxQL(run.database.url, run.database.token)
    store = InfluxSeries(InfluxDatabase(influxdb, DATABASE, owned_by("default", run)))
    yield store
    store.close()


def test_another_workspace_and_another_cluster_see_nothing(run: Run, store: InfluxSeries) -> None:
    metric = names.WORKER_COUNT.name
    assert store.query("default", run.cluster, [metric], run.since, run.until, 1)[metric]
    for workspace, cluster in (
        ("other", run.cluster),
        ("default", "other"),
        ("default' OR '1'='1", run.cluster),
        ("default", "x' OR 'a'='a"),
        ("other' OR '1'='1", run.cluster),
        ("default", f"{run.cluster}\\"),
        ("other\n", run.cluster),
    ):
        assert store.query(workspace, cluster, [metric], run.since, run.until, 1) == {metric: []}


def test_a_name_that_is_none_is_only_a_name(run: Run, store: InfluxSeries) -> None:
    for metric in ("", 'x" WHERE 1=1; SHOW DATABASES --', "a\\", 'dask.worker.count" --', "'"):
        assert store.query("default", run.cluster, [metric], run.since, run.until, 1) == {
            metric: []
        }


# No InfluxDB answers there, so it is the same whichever it would be.
@pytest.mark.parametrize("major", [1], ids=["influxdb1"], indirect=True)
def test_without_influxdb_the_rest_is_told_and_what_is_missing(run: Run) -> None:
    with ServiceProcess(
        run.service.data_dir,
        influxdb_url=f"http://127.0.0.1:{free_port()}",
        influxdb_token="of:nobody",
    ) as service:
        get = api(service).get
        parameters = {"cluster": run.cluster, "metric": names.WORKER_COUNT.name}
        address = f"{service.url}/api/v1/series"
        answer = get(address, params=parameters, timeout=30)
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        assert "it cannot be reached" in answer.json()["detail"]
        answer = get(f"{service.url}/api/v1/logs", timeout=30)
        assert answer.status_code == 503
        assert answer.json()["title"] == "No log records"
        found = get(f"{service.url}/api/v1/computations?cluster={run.cluster}", timeout=30)
        path = f"clusters/{run.cluster}/computations/{found.json()['items'][0]['id']}"
        answer = get(f"{service.url}/api/v1/{path}/trace", timeout=30)
        assert answer.status_code == 503
        cluster = get(f"{service.url}/api/v1/clusters/{run.cluster}", timeout=30)
        assert cluster.json()["status"] == "stopped"
        page = browser(service).get(f"{service.url}/clusters/{run.cluster}", timeout=30)
        logs = browser(service).get(f"{service.url}/logs", timeout=30)
        table = browser(service).get(f"{service.url}/logs.csv", timeout=30)
        computation = browser(service).get(f"{service.url}/{path}", timeout=30)
        assert page.ok
        assert "stored in InfluxDB, which is unavailable: it cannot be reached" in page.text
        assert "ValueError" in page.text
        assert logs.ok
        assert (
            "Log records are stored in InfluxDB, which is unavailable: it cannot be reached"
            in logs.text
        )
        assert table.status_code == 503
        assert computation.ok
        assert (
            "Traces are stored in InfluxDB, which is unavailable: it cannot be reached"
            in computation.text
        )


def test_a_token_that_is_refused_is_told(run: Run) -> None:
    with ServiceProcess(
        run.service.data_dir, influxdb_url=run.database.url, influxdb_token="no:token"
    ) as service:
        answer = api(service).get(
            f"{service.url}/api/v1/series",
            params={"cluster": run.cluster, "metric": names.WORKER_COUNT.name},
            timeout=30,
        )
    assert answer.status_code == 503
    assert "status 401" in answer.json()["detail"]
    assert "no:token" not in service.output + answer.text
