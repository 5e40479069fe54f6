"""What a real run tells is in a real InfluxDB, as the docs say."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from daskscope import names
from grafana import influxql
from tests.stack.collector import CONFIGURATIONS
from tests.stack.influxdb import SPANS_DATABASE
from tests.stack.run import TOPIC, Run

#: What the run need not bring about, and why.
EXCEPTIONS = {
    names.GPU_UTILIZATION: "no GPU",
    names.GPU_MEMORY_USED: "no GPU",
    names.GPU_MEMORY_LIMIT: "no GPU",
    names.DROPPED: "it may stay within all bounds",
    names.SEND_FAILURES: "no request of it fails",
}


@pytest.mark.parametrize("metric", names.METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_in_the_database_with_its_tags_and_its_field(
    run: Run, metric: names.Metric
) -> None:
    where = f"""FROM "{metric.name}" WHERE "dask.cluster.id" = '{run.cluster}'"""
    found = run.database.ask(f"SELECT * {where}")
    if metric in EXCEPTIONS and not found:
        return
    (series,) = found
    tags = {row["tagKey"] for row in run.database.rows(f"SHOW TAG KEYS {where}")}
    assert tags == {
        *names.RESOURCE_ATTRIBUTES,
        *metric.attributes,
        "otel.library.name",
        "otel.library.version",
    }
    fields = set(series["columns"]) - tags - {"time", "start_time_unix_nano"}
    expected = {
        "counter": {"counter"},
        "histogram": {
            *("count", "sum", "+Inf"),
            *(f"{bound:g}" for bound in names.DURATION_BOUNDS),
        },
    }
    assert fields == expected.get(metric.instrument, {"gauge"})


#: Attributes that a span or a log event has only at times, and why this run has none.
ABSENT = {
    names.EXCEPTION_MESSAGE: "only a log record of an exception",
    names.EXCEPTION_STACKTRACE: "only a log record of an exception",
    names.EXCEPTION_TYPE: "only of what failed",
    names.WORKER_LOSS_NANNY_MEMORY: "only of a worker that its nanny ended",
    names.WORKER_NAME: "only of a worker that had one",
    names.WORKER_LOSS_LOG: "only of a worker that was heard",
    names.WORKER_LOSS_DEPLOYMENT: "only of a worker in a batch job or a pod",
    names.COMPUTATION_ID: "only where it is known",
    names.TASK_PREFIX: "only where it is known",
}


def attributes_of(row: dict[str, Any]) -> set[str]:
    """Return the names of what a span or a log record has, as tags or in JSON."""
    return {key for key, value in row.items() if value not in (None, "")} | set(
        json.loads(row["attributes"])
    )


@pytest.mark.parametrize("event", names.LOG_EVENTS, ids=lambda event: event.name)
def test_every_log_event_is_in_the_database_with_its_attributes(
    run: Run, event: names.LogEvent
) -> None:
    found = run.database.rows(
        f"""SELECT * FROM "logs" WHERE "dask.cluster.id" = '{run.cluster}'
        AND "event.name" = '{event.name}'"""
    )
    assert found
    had = set().union(*map(attributes_of, found))
    assert set(event.attributes) - set(ABSENT) <= had
    assert {"body", "severity_number", "severity_text", *names.RESOURCE_ATTRIBUTES} <= had
    if event is names.LOG_EVENT:
        assert [
            (json.loads(row["attributes"])[names.EVENT_TOPIC], row["body"]) for row in found
        ] == [(TOPIC, '{"step": 1}')]


@pytest.mark.parametrize("span", names.SPANS, ids=lambda span: span.name)
def test_every_span_is_in_the_database_with_its_attributes(run: Run, span: names.SpanKind) -> None:
    found = run.database.rows(
        f"""SELECT * FROM "spans" WHERE "dask.cluster.id" = '{run.cluster}'
        AND "span.name" =~ /^{span.name}( |$)/""",
        SPANS_DATABASE,
    )
    assert found
    had = set().union(*map(attributes_of, found))
    assert {*span.attributes, *names.RESOURCE_ATTRIBUTES} <= had
    assert {"trace_id", "span_id", "duration_nano", "end_time_unix_nano"} <= had


def test_a_computation_is_one_trace_with_its_log_records(run: Run) -> None:
    spans = run.database.rows(
        f"""SELECT "span.name", "parent_span_id", "trace_id", "span_id" FROM "spans"
        WHERE "dask.cluster.id" = '{run.cluster}'""",
        SPANS_DATABASE,
    )
    by_id = {span["span_id"]: span for span in spans}
    for span in spans:
        parent = by_id.get(span["parent_span_id"])
        kind, _, prefix = span["span.name"].partition(" ")
        above = parent and parent["span.name"]
        if kind == names.SPAN_TASK.name:
            assert above == names.SPAN_TASK_GROUP.of(prefix)
        elif kind == names.SPAN_TASK_GROUP.name:
            assert names.SPAN_COMPUTATION.includes(str(above))
        else:
            assert above is None
        assert parent is None or parent["trace_id"] == span["trace_id"]
    finished = run.database.rows(
        f"""SELECT "body", "attributes" FROM "logs" WHERE
        "dask.cluster.id" = '{run.cluster}'
        AND "event.name" = '{names.LOG_COMPUTATION_FINISHED.name}'"""
    )
    computations = {
        (span["trace_id"], span["span_id"])
        for span in spans
        if names.SPAN_COMPUTATION.includes(span["span.name"])
    }
    told = [json.loads(row["attributes"]) for row in finished]
    assert {(attributes["trace_id"], attributes["span_id"]) for attributes in told} == computations


def test_no_tag_of_log_records_has_a_value_of_each_computation(run: Run) -> None:
    rows = run.database.rows('SHOW TAG KEYS FROM "logs"')
    tags = {row["tagKey"] for row in rows}
    assert {names.CLUSTER_ID, names.EVENT_NAME} <= tags
    assert not tags & {"trace_id", "span_id", names.COMPUTATION_ID}


def test_what_dashboards_ask_by_are_the_tags(run: Run) -> None:
    text = (CONFIGURATIONS / f"influxdb{run.database.major}.yaml").read_text(encoding="utf-8")
    exporters = yaml.safe_load(text)["exporters"]
    assert tuple(exporters["influxdb"]["log_record_dimensions"]) == influxql.LOG_TAGS
    assert tuple(exporters["influxdb/spans"]["span_dimensions"]) == influxql.SPAN_TAGS


def test_the_collector_complains_of_nothing(run: Run) -> None:
    assert run.collector.complaints() == []
