"""Spans out of InfluxDB are those of the service's own table, to all who may read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from daskscope import names
from daskscope_service.telemetry.influx_rows import InfluxDatabase
from daskscope_service.telemetry.influx_spans import InfluxSpans
from daskscope_service.telemetry.influxql import InfluxQL
from tests.service.pages import words
from tests.service_process import ServiceProcess
from tests.stack.influxdb import SPANS_DATABASE
from tests.stack.run import Run, owned_by
from tests.stack.sessions import api, browser


def ask(service: ServiceProcess, path: str) -> Any:
    answer = api(service).get(f"{service.url}/api/v1/{path}", timeout=30)
    assert answer.ok, answer.text
    return answer.json()


def computations(run: Run) -> list[str]:
    found = ask(run.service, f"computations?cluster={run.cluster}")["items"]
    return [item["id"] for item in found]


def test_both_stores_tell_alike_of_every_computation(run: Run, reader: ServiceProcess) -> None:
    told = set()
    for computation in computations(run):
        path = f"clusters/{run.cluster}/computations/{computation}/trace"
        own, read = (ask(service, path) for service in (run.service, reader))
        assert read == own
        told |= {span["name"] for span in read["spans"]}
    assert {name.partition(" ")[0] for name in told} == {span.name for span in names.SPANS}


def test_the_page_of_a_computation_is_the_same(run: Run, reader: ServiceProcess) -> None:
    def shown(service: ServiceProcess, computation: str) -> list[str]:
        address = f"{service.url}/clusters/{run.cluster}/computations/{computation}"
        page = browser(service).get(address, timeout=30)
        assert page.ok
        return re.findall("<svg.*?</svg>", words(page.text))

    for computation in computations(run)[:3]:
        own, read = shown(run.service, computation), shown(reader, computation)
        assert read
        assert read == own


@pytest.fixture
def influxdb(run: Run) -> Iterator[InfluxQL]:
    influxdb = InfluxQL(run.database.url, run.database.token)
    yield influxdb
    influxdb.close()


def test_only_the_workspace_that_heard_of_the_cluster_reads_its_spans(
    run: Run, influxdb: InfluxQL
) -> None:
    reader = InfluxSpans(InfluxDatabase(influxdb, SPANS_DATABASE, owned_by("team", run)))
    (computation, *_) = computations(run)
    found = ask(run.service, f"clusters/{run.cluster}/computations/{computation}/trace")
    trace = found["trace_id"]
    assert len(reader.of_computation("team", trace, computation).spans) == len(found["spans"])
    for workspace, trace_id, id in (
        ("default", trace, computation),
        ("other", trace, computation),
        ("team' OR '1'='1", trace, computation),
        ("other", f"{trace}' OR '1'='1", computation),
        ("team", "0" * 32, computation),
        ("team", trace, ".*"),
        ("team", trace, "x/ OR 1=1"),
        ("team", trace, ""),
    ):
        assert reader.of_computation(workspace, trace_id, id).spans == ()


def test_what_is_too_much_is_cut_and_said(run: Run, influxdb: InfluxQL) -> None:
    reader = InfluxSpans(InfluxDatabase(influxdb, SPANS_DATABASE, owned_by("default", run)))
    found = ask(run.service, f"computations?cluster={run.cluster}")["items"]
    computation = max(found, key=lambda item: item["tasks"])["id"]
    path = f"clusters/{run.cluster}/computations/{computation}/trace"
    trace = ask(run.service, path)["trace_id"]
    for most in (0, 1, 2):
        found = reader.of_computation("default", trace, computation, most)
        assert len(found.spans) == most
        assert found.more
        assert all(names.SPAN_COMPUTATION.includes(span.name) for span in found.spans[:1])
