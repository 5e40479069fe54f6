"""Into which bucket of the histogram a task's duration falls: of the metric and of the group."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from distributed import Client, LocalCluster, SchedulerPlugin, wait
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

import daskscope
from daskscope import names, protocol
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.recorder import Recorder
from tests.exporter.simulated_workers import SimulatedWorkers
from tests.exporter.test_computations import inc

#: Seconds, and the bucket that they belong to: up to and including its bound. Where a clock's times
#: can hold a bound exactly, that too.
SECONDS = (
    *((0.9 * bound, bucket) for bucket, bound in enumerate(names.DURATION_BOUNDS)),
    *((bound, bucket) for bucket, bound in enumerate(names.DURATION_BOUNDS) if bound >= 1),
    (1.5 * names.DURATION_BOUNDS[-1], len(names.DURATION_BOUNDS)),
)


def nap(seconds: float) -> None:
    time.sleep(seconds)


class Watch(SchedulerPlugin):
    """Keeps what Dask records of when tasks ran."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **details: Any) -> None:
        for action in details.get("startstops") or ():
            if action["action"] == "compute":
                self.seconds[key] = action["stop"] - action["start"]


@contextmanager
def watched(client: Client) -> Iterator[Watch]:
    """What the scheduler, which runs in this process, is told by its workers."""
    cluster: Any = client.cluster
    watch = Watch()
    cluster.scheduler.add_plugin(watch, name="watch")
    yield watch
    cluster.scheduler.remove_plugin("watch")


def histogram_of(recorder: Recorder, count: int) -> HistogramDataPoint:
    """Wait for the durations of so many tasks."""

    def last() -> HistogramDataPoint | None:
        for request in reversed(recorder.requests):
            if request.path != "/v1/metrics":
                continue
            sent = ExportMetricsServiceRequest.FromString(request.body)
            points = [
                point
                for metric in sent.resource_metrics[0].scope_metrics[0].metrics
                if metric.name == names.TASK_DURATION.name
                for point in metric.histogram.data_points
            ]
            return next((point for point in points if point.count == count), None)
        return None

    return recorder.wait_for(last, f"a histogram of {count}")


def group(recorder: Recorder) -> protocol.TaskGroup:
    (found,) = recorder.groups(recorder.computation().id).values()
    return found


def in_buckets(buckets: Counter[int]) -> list[int]:
    return [buckets[bucket] for bucket in range(len(names.DURATION_BOUNDS) + 1)]


def test_every_bucket_holds_what_lies_up_to_its_bound(recorder: Recorder) -> None:
    keys = [f"inc-{number}" for number in range(len(SECONDS))]
    told = {key: seconds for key, (seconds, _) in zip(keys, SECONDS, strict=True)}
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=False) as cluster,
        Client(cluster) as client,
        watched(client) as watch,
    ):
        workers = SimulatedWorkers(client, told.__getitem__)
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        workers.come(1)
        wait(client.map(inc, range(len(keys)), key=keys))
        point = histogram_of(recorder, len(keys))
        durations = group(recorder).durations
        workers.leave()
    assert watch.seconds == pytest.approx(told, abs=1e-6)
    expected = in_buckets(Counter(bucket for _, bucket in SECONDS))
    assert list(point.bucket_counts) == expected
    assert list(durations) == expected
    assert list(point.explicit_bounds) == list(names.DURATION_BOUNDS)
    assert point.sum == pytest.approx(sum(watch.seconds.values()))


@pytest.mark.parametrize("histogram", ["few", "none"])
def test_the_histogram_is_coarser_or_off_if_the_settings_say_so(
    recorder: Recorder, histogram: str
) -> None:
    keys = [f"inc-{number}" for number in range(len(SECONDS))]
    told = {key: seconds for key, (seconds, _) in zip(keys, SECONDS, strict=True)}
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=False) as cluster,
        Client(cluster) as client,
    ):
        workers = SimulatedWorkers(client, told.__getitem__)
        settings: dict[str, Any] = {"endpoint": recorder.url, "token": TOKEN, "interval": "100ms"}
        daskscope.register(client, **settings, otlp__histogram=histogram)
        workers.come(1)
        wait(client.map(inc, range(len(keys)), key=keys))
        if histogram == "few":
            point = histogram_of(recorder, len(keys))
            expected = [0] * 6
            for seconds in told.values():
                expected[sum(seconds > bound for bound in names.FEW_DURATION_BOUNDS)] += 1
            assert list(point.bucket_counts) == expected
            assert list(point.explicit_bounds) == [0.01, 0.1, 1, 10, 100]
        else:
            done = {("inc", "finished"): float(len(keys))}.items()
            recorder.wait_for(
                lambda: any(done <= one.items() for one in recorder.points(names.TASK_COMPLETED)),
                "the number of runs",
            )
            assert not any(recorder.points(names.TASK_DURATION))
        # The computation has all buckets, whatever the metric has.
        assert sum(group(recorder).durations) == len(keys)
        workers.leave()


def test_tasks_fall_where_dask_says_that_they_ran_for_so_long(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    with watched(client) as watch:
        wait(client.map(nap, [0, 0, 0.02, 0.05, 0.15], pure=False))
        point = histogram_of(recorder, 5)
        durations = group(recorder).durations
    expected = in_buckets(
        Counter(
            sum(seconds > bound for bound in names.DURATION_BOUNDS)
            for seconds in watch.seconds.values()
        )
    )
    assert list(point.bucket_counts) == expected
    assert list(durations) == expected
    assert point.sum == pytest.approx(sum(watch.seconds.values()))
