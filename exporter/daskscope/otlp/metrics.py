"""Metrics: the numbers of the last snapshot, observed by the SDK whenever it collects."""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.types import Attributes

from daskscope import names, protocol
from daskscope.containment import Contained
from daskscope.otlp.environment import SCOPE, positive
from daskscope.otlp.readings import READERS, Values, each, one
from daskscope.privacy import Cleared
from daskscope.version import __version__

#: Series of one metric that the SDK keeps apart: well above what the observer does. Beyond its own
#: bound of 2,000 the SDK would take one value for the sum of all others.
MAX_SERIES = 10_000

# Before it had such a bound, it had no setting for it.
_LIMITS: dict[str, Any] = (
    {"cardinality_limits": {ObservableCounter: MAX_SERIES}}
    if "cardinality_limits" in signature(PeriodicExportingMetricReader).parameters
    else {}
)


class Metrics:
    """A meter provider whose instruments read the last snapshot."""

    def __init__(
        self,
        exporter: MetricExporter,
        resource: Resource,
        interval: float,
        send_failures: Callable[[], Mapping[str, int]],
        waiting: Callable[[], Mapping[str, int]],
        prices: protocol.Prices | None,
        drops: Counter[str],
        began_at: float,
        bounds: tuple[float, ...] | None,
    ) -> None:
        """``interval`` in seconds; ``OTEL_METRIC_EXPORT_INTERVAL`` wins over it. ``began_at`` is
        when the plugin began to count, in seconds since the epoch. ``bounds`` are those of the
        histogram of durations, some of ``names.DURATION_BOUNDS``; None for no histogram.
        """
        self._contained = Contained(drops)
        self._last: Cleared | None = None
        # What is being read: all points of an export are of one snapshot, and of its time.
        self._read: Cleared | None = None
        self._reading = threading.Lock()
        self._starts = _Starts(began_at)
        self._bounds = bounds
        self._send_failures = send_failures
        self._waiting = waiting
        self._highest: dict[str, float] = {}
        # The longest since the snapshot that was read before, and up to the one that is being read.
        self._lag = self._read_lag = 0.0
        # How it was with the pipeline when that snapshot was first read.
        self._failures: Mapping[str, int] = {}
        self._queued: Mapping[str, int] = {}
        # Left to itself it begins to collect before the provider has it, and warns of that.
        self._reader = PeriodicExportingMetricReader(
            _OfSnapshot(exporter, self._starts, self._read_at, self._durations),
            export_interval_millis=math.inf,
            **_LIMITS,
        )
        self._provider = MeterProvider(
            [self._reader],
            resource=resource,
            # Within a sampled span every point would carry one: an explosion of series.
            exemplar_filter=AlwaysOffExemplarFilter(),
            # Whoever made the plugin ends it; at exit the SDK would wait half a minute.
            shutdown_on_exit=False,
        )
        self._register(self._provider.get_meter(SCOPE, __version__), prices)
        every = positive("OTEL_METRIC_EXPORT_INTERVAL", round(interval * 1000)) / 1000
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._collect_regularly, args=(every,), name="daskscope-metrics", daemon=True
        )
        self._thread.start()

    def observe(self, snapshot: Cleared) -> None:
        """Let the instruments read ``snapshot`` from now on. The first one is sent at once."""
        first = self._last is None
        load = snapshot.status.scheduler
        if load is not None:
            # There may be several snapshots to an export, and the longest is in one of them.
            self._lag = max(load.lag, self._lag)
        self._last = snapshot
        if first:
            self._collect()

    def shutdown(self, timeout: float) -> None:
        """Send once more and end, within about ``timeout`` seconds."""
        ends = time.monotonic() + timeout
        self._closing.set()
        self._thread.join(timeout)
        self._provider.shutdown(timeout_millis=max(ends - time.monotonic(), 0.0) * 1000)

    def _collect_regularly(self, every: float) -> None:
        while not self._closing.wait(every):
            self._collect()
        self._collect()

    def _collect(self) -> None:
        # They are totals: what goes wrong now is sent the next time.
        with self._contained, self._reading:
            # One that is read again, as the last one is, has the same values: its time is the same.
            if self._read is not self._last:
                self._read = self._last
                self._read_lag, self._lag = self._lag, 0.0
                self._failures, self._queued = dict(self._send_failures()), dict(self._waiting())
            self._reader.collect()

    def _register(self, meter: Meter, prices: protocol.Prices | None) -> None:
        makers = {
            "counter": meter.create_observable_counter,
            "updowncounter": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }
        readers = {
            **READERS,
            names.TASK_TIME: self._task_time,
            names.SCHEDULER_LAG: self._scheduler_lag,
            names.SEND_FAILURES: lambda _: each(names.SENT_WHAT, self._failures),
            names.QUEUE_SIZE: lambda _: each(names.QUEUE_NAME, self._queued),
        }
        for metric, read in readers.items():
            unit = metric.unit
            if metric in (names.CLUSTER_COST, names.CLUSTER_IDLE_COST):
                if prices is None or not prices.per_hour:
                    continue
                unit = f"{{{prices.currency}}}"
            makers[metric.instrument](metric.name, [self._callback(read)], unit, metric.help)

    def _task_time(self, snapshot: Cleared) -> Values:
        for row in snapshot.times:
            for activity, seconds in row.seconds.items():
                # A metric of its own: what has ended runs no longer, and a counter only grows.
                if activity != "running":
                    yield (
                        seconds if row.prefix else self._grown(activity, seconds),
                        {names.TASK_PREFIX: row.prefix, names.TASK_ACTIVITY: activity},
                    )

    def _scheduler_lag(self, snapshot: Cleared) -> Values:
        return () if snapshot.status.scheduler is None else one(self._read_lag)

    def _grown(self, activity: str, seconds: float) -> float:
        # What is left over goes back a little when a worker's beat reports more.
        highest = self._highest[activity] = max(seconds, self._highest.get(activity, 0.0))
        return highest

    def _callback(
        self, read: Callable[[Cleared], Values]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if self._read is not None:
                for value, attributes in read(self._read):
                    # InfluxDB fixes a field's type at its first point: never an integer.
                    yield Observation(float(value), attributes)

        return observe

    def _read_at(self) -> int:
        """Return the time of the snapshot that is read, in nanoseconds since the epoch."""
        return time.time_ns() if self._read is None else int(self._read.status.at * 1e9)

    def _durations(self) -> list[HistogramDataPoint]:
        snapshot, bounds = self._read, self._bounds
        if snapshot is None or bounds is None:
            return []
        at = self._read_at()
        rows = [
            (row, {names.TASK_PREFIX: row.prefix})
            for row in snapshot.prefixes
            if any(row.durations)
        ]
        return [
            HistogramDataPoint(
                attributes=attributes,
                start_time_unix_nano=self._starts.of(names.TASK_DURATION.name, attributes, at),
                time_unix_nano=at,
                count=sum(row.durations),
                sum=row.duration_seconds,
                bucket_counts=_joined(row.durations, bounds),
                explicit_bounds=bounds,
                min=None,  # type: ignore[arg-type]  # left out: not kept since the start
                max=None,  # type: ignore[arg-type]
            )
            for row, attributes in rows
        ]


def _joined(counts: Sequence[int], bounds: tuple[float, ...]) -> list[int]:
    """Return the ``counts`` of all buckets in those of ``bounds``, which are some of the bounds."""
    joined = [0] * (len(bounds) + 1)
    for bound, count in zip((*names.DURATION_BOUNDS, math.inf), counts, strict=True):
        joined[bisect_left(bounds, bound)] += count
    return joined


class _Starts:
    """Since when each series of a counter or histogram counts, in nanoseconds since the epoch.

    What is in the first export counts since the plugin started. What comes later was nothing in
    the export before it, so it counts since then: whoever takes a series for zero at its start, as
    Prometheus can, finds all that was counted in the time that it was counted in.
    """

    def __init__(self, began_at: float) -> None:
        self._before = int(began_at * 1e9)
        # As many as series, and these are bounded.
        self._starts: dict[Hashable, int] = {}

    def of(self, metric: str, attributes: Attributes, at: int) -> int:
        """Return the start of a series whose point is of the time ``at``."""
        series = metric, frozenset((attributes or {}).items())
        start = self._starts.setdefault(series, self._before)
        return min(start, at)  # the clock may have been set back

    def exported(self, at: int) -> None:
        """Let series that come from now on begin ``at`` that time."""
        self._before = at


class _OfSnapshot(MetricExporter):
    """Exports points with the times of the snapshot that they were read from, and adds the task
    duration histogram.

    The SDK gives a point the time at which it is collected, up to an interval after the snapshot:
    a counter would grow by two intervals in one, and by nothing in the next. And it lets a counter
    start with its first point: what that one has counted would have been counted in no time.

    The SDK has no observable histogram, and recording each task would cost the scheduler some ten
    microseconds a task; the buckets are counted as tasks finish and added here as they are.
    """

    def __init__(
        self,
        exporter: MetricExporter,
        starts: _Starts,
        read_at: Callable[[], int],
        durations: Callable[[], list[HistogramDataPoint]],
    ) -> None:
        super().__init__()
        self._exporter = exporter
        self._starts = starts
        self._read_at = read_at
        self._durations = durations

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        if metrics_data.resource_metrics:
            # The one scope there is: the encoder keeps one entry per resource and scope.
            ours = metrics_data.resource_metrics[0]
            scope = ours.scope_metrics[0]
            at = self._read_at()
            metrics = [self._at(at, metric) for metric in scope.metrics]
            if points := self._durations():
                metrics.append(
                    Metric(
                        names.TASK_DURATION.name,
                        names.TASK_DURATION.help,
                        names.TASK_DURATION.unit,
                        Histogram(points, AggregationTemporality.CUMULATIVE),
                    )
                )
            self._starts.exported(at)
            metrics_data = MetricsData(
                [replace(ours, scope_metrics=[replace(scope, metrics=metrics)])]
            )
        return self._exporter.export(metrics_data, timeout_millis, **kwargs)

    def _at(self, at: int, metric: Metric) -> Metric:
        """Return ``metric`` with that time, in nanoseconds, and their starts on all its points."""
        data = metric.data
        if not isinstance(data, Sum | Gauge):
            return metric
        points = [
            NumberDataPoint(
                point.attributes,
                self._starts.of(metric.name, point.attributes, at)  # type: ignore[arg-type]
                if isinstance(data, Sum)
                else None,
                at,
                point.value,
            )
            for point in data.data_points
        ]
        return replace(metric, data=replace(data, data_points=points))

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._exporter.shutdown(timeout_millis, **kwargs)
