"""Workers and schedulers that are restarted: what was told stays told, and all goes on."""

from __future__ import annotations

import gzip
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dask.base import annotate
from dask.delayed import delayed
from distributed import Client, Event
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from daskscope import names, protocol
from daskscope.delivery.spool import read_records
from tests.exporter.conftest import TOKEN, Register, wait_for_worker_logs
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.exporter.test_logs import attributes, of, records, warn
from tests.exporter.test_traces import CALLER, PARENT, TRACE, own_span, told_workers
from tests.patience import PATIENCE, START_PATIENCE, wait_until

Totals = dict[tuple[Any, ...], float]


def inc(x: int) -> int:
    return x + 1


def twice(x: int) -> int:
    return 2 * x


def thrice(x: int) -> int:
    return 3 * x


def hold(number: int) -> None:
    Event("restarted and never set").wait()


# --- the workers ----------------------------------------------------------------------------------


def _totals(recorder: Recorder) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Every total that was told, as often as it was, in that order."""
    for beat in sorted(recorder.beats, key=lambda beat: beat.seq):
        for state, seconds in beat.status.worker_seconds.items():
            yield ("status", state), seconds
        for row in beat.computations:
            yield (row.id, "completed"), row.completed
            yield (row.id, "cancelled"), row.cancelled
        for group in beat.task_groups:
            yield (group.computation, group.name, "completed"), group.completed
        for activity in beat.activities:
            for kind, seconds in activity.seconds.items():
                # What runs, and what is left over, becomes something else once more is known.
                if kind != "running" and activity.prefix:
                    yield (activity.prefix, kind), seconds
    for sent in recorder.otlp(ExportMetricsServiceRequest):
        for resource in sent.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.sum.is_monotonic:
                        for point in metric.sum.data_points:
                            told = ((pair.key, str(pair.value)) for pair in point.attributes)
                            yield (metric.name, *sorted(told)), point.as_double or point.as_int


def _assert_none_ever_falls(recorder: Recorder) -> None:
    told: Totals = {}
    for what, total in _totals(recorder):
        assert total >= told.get(what, 0.0), what
        told[what] = total
    assert {what[0] for what in told} >= {"status", names.WORKER_TIME.name}


@pytest.mark.usefixtures("sends_soon")
def test_after_a_restart_of_the_workers_nothing_is_missing_and_no_total_has_fallen(
    client: Client, register: Register, recorder: Recorder
) -> None:
    identity = register().cluster_id
    wait_for_worker_logs(client)
    client.gather(client.map(inc, range(8), pure=False))
    before = recorder.computation().id
    held = client.map(hold, range(2), pure=False)
    recorder.wait_for(
        lambda: any(row.states.get("processing") == 2 for row in recorder.computations().values()),
        "both in a thread",
    )
    client.restart()
    del held

    cut_off = recorder.computation(lambda row: row.status == "cancelled")
    assert (cut_off.tasks, cut_off.cancelled, cut_off.completed) == (2, 2, 0)
    (loss,) = recorder.wait_for(recorder.losses, "the loss")
    # Dask drops all tasks before it ends the workers: none had one left.
    assert (loss.reason, loss.expected, loss.tasks) == (names.LOSS_RESTARTED, True, {})

    # The new worker process has all that the old one had.
    wait_for_worker_logs(client)
    _wait_for_context(client)
    with annotate(traceparent=CALLER):
        trace, parent = client.submit(own_span, pure=False).result()
    assert (trace, parent != PARENT) == (TRACE, True)  # but the span of its group
    worker = client.submit(warn, "after", pure=False).result()
    assert worker != loss.address
    (record,) = records(recorder, of("mine"))
    after = recorder.computation(lambda row: row.id not in (before, cut_off.id))
    told = attributes(record)
    assert told[names.TASK_PREFIX] == "warn"
    assert told[names.WORKER_ADDRESS] == worker
    assert recorder.computations()[told[names.COMPUTATION_ID]].tasks == 1
    assert after.status == "finished"
    assert {beat.cluster.id for beat in recorder.beats} == {identity}
    _assert_none_ever_falls(recorder)


def _wait_for_context(client: Client) -> None:
    wait_until(lambda: told_workers(client))


# --- the scheduler --------------------------------------------------------------------------------


def _finished(recorder: Recorder) -> int:
    return sum(row.status == "finished" for row in recorder.computations().values())


def test_a_scheduler_that_comes_back_at_its_address_is_a_cluster_of_its_own(
    recorder: Recorder, tmp_path: Path
) -> None:
    options = [
        "--preload", "daskscope",
        "--daskscope-endpoint", recorder.url,
        "--daskscope-interval", "100ms",
        "--daskscope-spool-directory", str(tmp_path),
    ]  # fmt: skip
    with scheduler_process(*options, DASK_DASKSCOPE__TOKEN=TOKEN) as first:
        with worker_process(first.address) as worker:
            with Client(first.address, timeout=START_PATIENCE) as client:
                client.submit(inc, 1).result(timeout=START_PATIENCE)
                recorder.wait_for(lambda: _finished(recorder) == 1, "the first computation")
                recorder.misbehave = lambda path: 503
                delayed(twice)(1).compute()
                wait_until(lambda: _ended_in_spool(tmp_path, "twice"), what="its end in the spool")
                first.process.send_signal(signal.SIGKILL)
                first.process.wait(PATIENCE)
            # Dask's workers end with their scheduler; whoever runs them starts others.
            worker.communicate(timeout=60)
    assert _finished(recorder) == 1
    recorder.misbehave = lambda path: None

    port = first.address.rpartition(":")[2]
    with scheduler_process(*options, port=port, DASK_DASKSCOPE__TOKEN=TOKEN) as second:
        assert second.address == first.address
        with (
            worker_process(second.address),
            Client(second.address, timeout=START_PATIENCE) as client,
        ):
            client.submit(thrice, 1).result(timeout=START_PATIENCE)
            recorder.wait_for(lambda: _finished(recorder) == 3, "all computations")
        second.stop()
    cluster_of = {
        group.prefix: beat.cluster.id for beat in recorder.beats for group in beat.task_groups
    }
    assert cluster_of["inc"] == cluster_of["twice"] != cluster_of["thrice"]
    assert {beat.cluster.id for beat in recorder.beats} == set(cluster_of.values())
    started = {beat.cluster.id: beat.cluster.started_at for beat in recorder.beats}
    assert started[cluster_of["inc"]] < started[cluster_of["thrice"]]
    assert not any("refused" in what for beat in recorder.beats for what in beat.drops)


def _ended_in_spool(folder: Path, prefix: str) -> bool:
    """Return whether it is on the disk, of which no one tells, that these tasks have ended."""
    beats = [
        msgspec.json.decode(gzip.decompress(body), type=protocol.Heartbeat)
        for file in folder.glob("*.beats")
        for body in read_records(file.read_bytes())
    ]
    wanted = {row.computation for beat in beats for row in beat.task_groups if row.prefix == prefix}
    return any(
        row.id in wanted and row.status == "finished" for beat in beats for row in beat.computations
    )
