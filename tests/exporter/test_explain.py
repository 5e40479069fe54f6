"""explain() shows what leaves: made on the way that it goes, switch by switch."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from dask.delayed import delayed
from distributed import Client, LocalCluster, wait
from distributed.metrics import time
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import daskscope
from daskscope import names, protocol
from daskscope.otlp.readings import PEAKS
from tests import forked
from tests.exporter.conftest import TOKEN, Register, wait_for_worker_logs
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE, wait_until


def inc(x: int) -> int:
    return x + 1


def fail(text: str) -> None:
    raise ValueError(f"cannot read {text}")  # a_source_line


def spin(seconds: float) -> None:
    ends = time() + seconds
    while time() < ends:
        sum(range(1000))  # a_profiled_line


def log(number: int) -> None:
    logging.getLogger("mine").warning("line %d of the log", number)


def _work(client: Client) -> None:
    client.submit(inc, 1).result()  # a_line_of_code
    wait(client.submit(fail, "sheet-7"))
    client.log_event("mine", {"message": "an_event"})


@pytest.fixture
def explanation(
    client: Client, register: Register, recorder: Recorder, loops_never_pause: None
) -> Iterator[Any]:
    register(
        events__allow=["mine"],
        tags={"project": "a_tag"},
        prices={"currency": "XTS", "thread": 1.5},
        instances__type="a.machine",
        interval="1h",
    )
    wait_for_worker_logs(client)
    _work(client)
    client.gather(client.map(log, range(3)))
    # A worker reports it with its next heartbeat.
    wait_until(lambda: daskscope.explain(client)["instances.transmit"].sends)
    yield daskscope.explain(client)
    # It would see only in an hour that it is gone.
    client.run_on_scheduler(_end)


def test_what_each_switch_sends_is_shown(explanation: daskscope.Explanation) -> None:
    def sent(setting: str) -> str:
        return json.dumps(explanation[setting].sends)

    code, exceptions = sent("computation.code.transmit"), sent("computation.exceptions.transmit")
    assert "a_line_of_code" in code
    assert "a_source_line" in code
    assert "cannot read sheet-7" not in code.replace("raise ValueError", "")
    assert "cannot read sheet-7" in exceptions
    assert "a_source_line" in exceptions
    assert "an_event" in sent("events.allow")
    assert "a_tag" in sent("tags")
    assert set(explanation["otlp.enabled"].sends) == {"metrics", "traces", "logs"}
    records = explanation["logs.transmit"].sends["logs"]["log_records"]
    assert sorted(
        record["body"] for record in records if record["attributes"]["dask.log.logger"] == "mine"
    ) == [f"line {number} of the log" for number in range(3)]
    prices = explanation["prices"].sends
    assert prices["heartbeat"]["cluster"]["prices"]["currency"] == "XTS"
    assert prices["metrics"]["dask.cluster.cost"]["unit"] == "{XTS}"
    assert explanation["prices"].shown() == '{"currency": "XTS", "per_hour": {"thread": 1.5}}'
    assert "a.machine" in sent("instances.transmit")
    assert explanation["profile.transmit"].sends == {}
    traces = explanation["traces.transmit"].sends
    # Of both: the rows of a computation have one trace, and so have the log records that tell it.
    ids = {row["trace_id"] for row in traces["heartbeat"]["computations"]}
    spans = traces["traces"]["spans"]
    assert {span["trace_id"] for span in spans} == ids
    assert {record["trace_id"] for record in traces["logs"]["log_records"]} <= ids
    assert [
        span["attributes"]["dask.task.outcome"]
        for span in spans
        if span["name"].startswith("dask.task ")
    ] == [
        "finished",
        "erred",
        *["finished"] * 3,
    ]
    always = sent("always")
    assert "trace_id" not in {
        name
        for row in explanation["always"].sends["heartbeat"]["computations"]
        for name, value in row.items()
        if value is not None
    }
    for what in ("a_line_of_code", "cannot read sheet-7", "an_event", "a_tag", "dask.task.count"):
        assert what not in always
    assert '"completed": 1' in always


def test_sizes_add_up(explanation: daskscope.Explanation) -> None:
    assert explanation.bytes > explanation.gzip > 0
    for part in explanation.parts:
        assert bool(part.sends) == (part.bytes > 0), part.setting
    assert explanation["otlp.enabled"].bytes < explanation.bytes
    assert explanation["always"].bytes < explanation.bytes


def test_a_profile_is_shown_and_without_source_lines_if_code_is_refused(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(profile__interval="500ms")
    client.submit(spin, 2.0).result()

    def profile() -> protocol.Profile | None:
        rows = [row for beat in recorder.beats for row in beat.profiles]
        return next((row for row in rows if any(map(_is_spun, row.lines))), None)

    sent = recorder.wait_for(profile, "a profile")
    explanation = daskscope.explain(client)
    shown = {
        row["id"]: row for row in explanation["profile.transmit"].sends["heartbeat"]["profiles"]
    }
    assert shown[sent.id] == json.loads(json.dumps(asdict(sent)))
    assert "a_profiled_line" in json.dumps(explanation["computation.code.transmit"].sends)
    part = str(explanation).partition("\nprofile.transmit is true: ")[2].partition("\n\n")[0]
    assert "a_profiled_line" in part


def _is_spun(line: protocol.ProfileLine) -> bool:
    return line.function == "spin" and line.text is not None and "a_profiled_line" in line.text


def test_totals_are_those_of_the_moment_however_long_it_has_run(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    _work(client)
    recorder.wait_for(lambda: recorder.beats[-1].status.idle_seconds, "idleness")
    seq = recorder.beats[-1].seq
    recorder.wait_for(lambda: recorder.beats[-1].seq > seq + 3, "more beats")
    explanation = daskscope.explain(client)
    status = explanation["always"].sends["heartbeat"]["status"]
    times = explanation["otlp.enabled"].sends["metrics"]["dask.task.time"]
    threads_time = sum(status["worker_seconds"].values())
    assert sum(point["value"] for point in times["data_points"]) == pytest.approx(threads_time)


def test_it_says_what_keeps_the_cluster_from_being_closed_as_idle(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    stuck = client.submit(inc, 1, resources={"no such thing": 1}, pure=False)
    recorder.wait_for(lambda: recorder.beats[-1].status.busy_by, "the task")
    # Before, its graph may still be on the way.
    waits = "tasks wait for a worker that can run them"
    explanation = wait_until(lambda: _once_busy_by(client, waits))
    assert f"It is at work, so it is not closed as idle: {waits}." in repr(explanation)
    stuck.cancel()


def _once_busy_by(client: Client, reason: str) -> daskscope.Explanation | None:
    explanation = daskscope.explain(client)
    return explanation if explanation.busy_by == (reason,) else None


def test_it_reads_well_and_holds_no_token(
    explanation: daskscope.Explanation, recorder: Recorder
) -> None:
    text = str(explanation)
    assert f"heartbeat to {recorder.url}/api/v1/heartbeats" in text
    assert f"logs to {recorder.url}/v1/logs" in text
    assert "computation.code.transmit is true: " in text
    assert "a_line_of_code" in text
    assert re.search(r"(?m)^  events.allow +\[\"mine\"\] +\d+ +\d+$", repr(explanation))
    assert len(repr(explanation)) < len(text)
    for shown in (text, repr(explanation), explanation.to_json()):
        assert TOKEN not in shown
    assert json.loads(explanation.to_json())["cluster_id"] == explanation.cluster_id


def test_what_is_shown_is_what_is_sent(
    explanation: daskscope.Explanation, client: Client, recorder: Recorder
) -> None:
    """And each row is sent once: an explanation takes none away, and adds none."""
    failure = recorder.wait_for(lambda: next(iter(recorder.failures()), None), "the failure")
    client.run_on_scheduler(_end)
    shown = explanation["computation.exceptions.transmit"].sends["heartbeat"]["failures"][0]
    assert shown["message"] == failure.message
    assert shown["traceback"] == failure.traceback
    sent = [row for beat in recorder.beats for row in beat.events]
    assert len(sent) == 1
    assert json.loads(sent[0].message) == {"message": "an_event"}
    assert [row.status for row in recorder.computations().values()] == [
        "finished",
        "erred",
        "finished",
    ]


def test_of_otlp_every_field_is_shown(
    client: Client, register: Register, recorder: Recorder, loops_never_pause: None
) -> None:
    register(interval="1h")
    wait_for_worker_logs(client)
    of_two_groups = delayed(log)(delayed(inc)(1))
    client.compute(of_two_groups).result()
    wait(client.submit(fail, "sheet-7"))
    explanation = daskscope.explain(client)
    shown = explanation["otlp.enabled"].sends
    client.run_on_scheduler(_end)

    who, spans = _received(recorder, "traces", "spans")
    assert _without(shown["traces"], "spans") == who
    assert _by_name_of_span(shown["traces"]["spans"]) == _by_name_of_span(spans)
    assert [len(span.get("links", ())) for span in _in_order(spans)].count(1) == 1

    who, records = _received(recorder, "logs", "log_records")
    assert _without(shown["logs"], "log_records") == who
    sent = [_without(record, "observed_time") for record in records]
    expected = [
        record
        for record in sent
        if not record["event_name"].startswith(("dask.cluster.", "dask.log"))
    ]
    told = [_without(record, "observed_time") for record in shown["logs"]["log_records"]]
    assert all(record in sent for record in told)
    assert all(record in told for record in expected)

    # And nothing is counted twice.
    sizes = {
        signal: [len(one.body) for one in recorder.requests if one.path == f"/v1/{signal}"]
        for signal in _READ
    }
    assert explanation["otlp.enabled"].bytes <= (
        sizes["metrics"][-1] + sum(sizes["traces"]) + sum(sizes["logs"])
    )

    who, metrics = _received(recorder, "metrics", "metrics", last=True)
    assert {name: shown["metrics"][name] for name in who} == who
    sent_metrics = {metric["name"]: metric for metric in metrics}
    # What a bound drops, and what workers report, may have come since.
    since = {names.DROPPED, names.MEMORY_PEAK, *PEAKS}
    assert sent_metrics.keys() - shown["metrics"].keys() <= {metric.name for metric in since}
    for name, told_metric in _without(shown["metrics"], *who).items():
        metric, kind = sent_metrics[name], told_metric["kind"]
        data = metric.pop(kind)
        points = {str(point.get("attributes")): point for point in data.pop("data_points")}
        assert _without(told_metric, "data_points", "kind") == _without({**metric, **data}, "name")
        for told_point in told_metric["data_points"]:
            point = points[str(told_point.get("attributes"))]
            if kind == "histogram":
                assert told_point.keys() == point.keys() - {"start_time"}
                assert _without(told_point, "time") == _without(point, "time", "start_time")
            else:
                assert told_point.keys() - {"value"} == point.keys() - {"start_time", "as_double"}


_READ: dict[str, tuple[str, Any]] = {
    "metrics": ("metrics", ExportMetricsServiceRequest),
    "traces": ("spans", ExportTraceServiceRequest),
    "logs": ("logs", ExportLogsServiceRequest),
}


def _received(
    recorder: Recorder, signal: str, field: str, *, last: bool = False
) -> tuple[dict[str, Any], list[Any]]:
    """Return who sent a signal, and what came of it: of protobuf's own reading of it to JSON."""
    who: dict[str, Any] = {}
    items = []
    kind, body_of = _READ[signal]
    bodies = [one.body for one in recorder.requests if one.path == f"/v1/{signal}"]
    for body in bodies[-1:] if last else bodies:
        told = MessageToDict(body_of.FromString(body), preserving_proto_field_name=True)
        [resource] = told[f"resource_{kind}"]
        [scope] = resource[f"scope_{kind}"]
        who = _plain({"resource": resource["resource"], "scope": scope["scope"]})
        items += _plain(scope[field])
    return who, items


def _plain(told: Any) -> Any:
    if isinstance(told, list):
        return [_plain(one) for one in told]
    if not isinstance(told, dict):
        return told
    plain = {}
    for name, value in told.items():
        if name == "attributes":
            value = {pair["key"]: _plain_value(pair["value"]) for pair in value}
        elif name == "body":
            value = value["string_value"]
        elif name.endswith("_unix_nano"):
            seconds, nanoseconds = divmod(int(value), 10**9)
            at = datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")
            name, value = name.removesuffix("_unix_nano"), f"{at}.{nanoseconds:09}Z"
        elif name.endswith(("trace_id", "span_id")):
            value = b64decode(value).hex()
        elif name == "count":
            value = int(value)
        elif name == "bucket_counts":
            value = [int(count) for count in value]
        plain[name] = _plain(value) if name != "attributes" else value
    return plain


def _plain_value(value: dict[str, Any]) -> Any:
    [(kind, one)] = value.items()
    return int(one) if kind == "int_value" else one


def _without(told: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {field: value for field, value in told.items() if field not in fields}


def _in_order(spans: list[Any]) -> list[Any]:
    return sorted(spans, key=lambda span: (span["start_time"], span["name"]))


def _by_name_of_span(spans: list[Any]) -> list[Any]:
    """Return spans in order, each id replaced by what it is of: they are made at each sending."""
    text = json.dumps(_in_order(spans))
    for span in spans:
        text = text.replace(
            span["span_id"], f"{span['name']} of {span['attributes'].get(names.TASK_PREFIX)}"
        )
    return list(json.loads(text))


async def _end(dask_scheduler: Any) -> None:
    await dask_scheduler.plugins["daskscope"].close()


def test_again_and_again_it_shows_the_latest_rows(
    explanation: daskscope.Explanation, client: Client
) -> None:
    again = daskscope.explain(client)
    assert (
        again["events.allow"].sends["heartbeat"] == explanation["events.allow"].sends["heartbeat"]
    )


def test_a_switch_that_is_off_sends_nothing(client: Client, register: Register) -> None:
    register(
        computation__code__transmit=False,
        computation__exceptions__transmit=False,
        otlp__enabled=False,
    )
    _work(client)
    explanation = daskscope.explain(client)
    assert not explanation["otlp.enabled"].on
    assert set(explanation.destinations) == {"heartbeat"}
    assert "otlp.enabled is off: it sends nothing" in str(explanation)
    assert re.search(r"(?m)^  otlp.enabled +off +0 +0$", repr(explanation))
    assert explanation["computation.exceptions.transmit"].sends == {}
    assert "cannot read sheet-7" not in str(explanation)


def test_otlp_is_shown_to_go_where_the_environment_says(
    client: Client, register: Register, monkeypatch: pytest.MonkeyPatch, recorder: Recorder
) -> None:
    with Recorder() as collector:
        address = collector.url.replace("http://", "http://bob:hunter2@")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        register()
        explanation = daskscope.explain(client)
    assert explanation.destinations["metrics"].endswith("/v1/metrics")
    assert explanation.destinations["heartbeat"].startswith(recorder.url)
    assert "hunter2" not in str(explanation)


def test_sizes_and_totals_are_shown_as_the_environment_has_them(
    client: Client, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
        register()
        _work(client)
        part = daskscope.explain(client)["otlp.enabled"]
    assert part.gzip == part.bytes > 0
    durations = part.sends["metrics"][names.TASK_DURATION.name]
    assert durations["aggregation_temporality"] == "AGGREGATION_TEMPORALITY_DELTA"
    assert {
        point["attributes"][names.TASK_PREFIX]: point["count"] for point in durations["data_points"]
    } == {"inc": 1}  # runs that finished


def test_what_the_plugin_counts_of_itself_is_shown(
    client: Client, register: Register, recorder: Recorder
) -> None:
    recorder.misbehave = lambda path: 401 if path == "/api/v1/heartbeats" else None
    register()

    def shown(metric: names.Metric) -> dict[str, float]:
        told = daskscope.explain(client)["otlp.enabled"].sends["metrics"].get(metric.name)
        points = [] if told is None else told["data_points"]
        return {point["attributes"][metric.attributes[0]]: point["value"] for point in points}

    assert set(shown(names.QUEUE_SIZE)) == {"clear", "report", "emit", "rows"}
    failed = recorder.wait_for(lambda: _failed(recorder), "a failure that is told of")
    assert shown(names.SEND_FAILURES)["heartbeats"] >= failed
    client.run_on_scheduler(_end)


def _failed(recorder: Recorder) -> float:
    return max(
        (values.get(("heartbeats",), 0) for values in recorder.points(names.SEND_FAILURES)),
        default=0,
    )


def test_where_nobody_registered_it_says_so(client: Client) -> None:
    explanation = daskscope.explain(client)
    assert "daskscope.register()" in (explanation.problem or "")
    assert repr(explanation).startswith("daskscope sends nothing: it is not registered")


def test_without_a_client_the_error_says_so() -> None:
    with pytest.raises(daskscope.ConfigurationError, match="no Dask client"):
        daskscope.explain()


def test_an_asynchronous_client_awaits_it(cluster: LocalCluster, recorder: Recorder) -> None:
    async def ask() -> Any:
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            await daskscope.register(client, endpoint=recorder.url, token=TOKEN)
            return await daskscope.explain(client)

    # In a thread: another test's browser may have left a loop running in this one.
    with ThreadPoolExecutor() as threads:
        explanation = threads.submit(asyncio.run, ask()).result()
    assert explanation["always"].sends["heartbeat"]["protocol"] == protocol.PROTOCOL


def _command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(["explain", *arguments], os.environ, timeout=START_PATIENCE)


def test_the_command_line_shows_it_too(cluster: LocalCluster, register: Register) -> None:
    refused = _command_line(cluster.scheduler_address)
    assert refused.returncode == 1
    assert "daskscope.register()" in refused.stderr

    cluster_id = register().cluster_id
    shown = _command_line(cluster.scheduler_address, "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["cluster_id"] == cluster_id
    assert TOKEN not in shown.stdout
    assert "  always " in _command_line(cluster.scheduler_address, "--brief").stdout
