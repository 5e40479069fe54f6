"""explain() shows what leaves: made on the way that it goes, switch by switch."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from distributed import Client, LocalCluster, wait

import daskscope
from daskscope import protocol
from tests.exporter.conftest import TOKEN, Register, wait_for_worker_logs
from tests.exporter.recorder import Recorder


def inc(x: int) -> int:
    return x + 1


def fail(text: str) -> None:
    raise ValueError(f"cannot read {text}")  # a_source_line


def log(number: int) -> None:
    logging.getLogger("mine").warning("line %d of the log", number)


def _work(client: Client) -> None:
    client.submit(inc, 1).result()  # a_line_of_code
    wait(client.submit(fail, "sheet-7"))
    client.log_event("mine", {"message": "an_event"})


@pytest.fixture
def explanation(client: Client, register: Register, recorder: Recorder) -> Iterator[Any]:
    register(
        events__allow=["mine"],
        tags={"project": "a_tag"},
        prices={"currency": "XTS", "thread": 1.5},
        interval="1h",
    )
    wait_for_worker_logs(client)
    _work(client)
    client.gather(client.map(log, range(3)))
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
    records = explanation["logs.transmit"].sends["logs"]
    assert sorted(record["body"] for record in records if record["dask.log.logger"] == "mine") == [
        f"line {number} of the log" for number in range(3)
    ]
    assert sent("prices").count("XTS") == 1
    assert explanation["prices"].shown() == '{"currency": "XTS", "per_hour": {"thread": 1.5}}'
    assert explanation["profile.transmit"].sends == {}
    traces = explanation["traces.transmit"].sends
    # Of both: the rows of a computation have one trace, and so have the log records that tell it.
    ids = {row["trace_id"] for row in traces["heartbeat"]["computations"]}
    assert {span["trace"] for span in traces["traces"]} == ids
    assert {record["trace"] for record in traces["logs"]} <= ids
    assert [
        span["dask.task.outcome"] for span in traces["traces"] if span["span"] == "dask.task"
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
    assert sum(point["value"] for point in times) == pytest.approx(threads_time)


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
    assert "otlp.enabled is off: nothing of it is sent" in str(explanation)
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


def test_where_nobody_registered_it_says_so(client: Client) -> None:
    explanation = daskscope.explain(client)
    assert "daskscope.register()" in (explanation.problem or "")
    assert repr(explanation).startswith("daskscope sends nothing: nobody has registered")


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
    return subprocess.run(
        [sys.executable, "-m", "daskscope_service.cli", "explain", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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
