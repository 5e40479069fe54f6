"""Sends metrics: the SDK reads the numbers of the last snapshot whenever it collects."""

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
from daskscope.otlp.readings import PEAKS, READERS, Values, each, measured
from daskscope.privacy import Cleared
from daskscope.version import __version__

#: The SDK's bound on series of one metric, well above the observer's bounds. The SDK's default is
#: 2,000; for series beyond it, the SDK would send a single wrong value.
MAX_SERIES = 10_000

# Older versions of the SDK have neither the bound nor the parameter.
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
        """``interval`` is in seconds; ``OTEL_METRIC_EXPORT_INTERVAL`` overrides it. ``began_at`` is
        when the plugin began to count, in seconds since the epoch. ``bounds`` are those of the
        histogram of durations, a subset of ``names.DURATION_BOUNDS``; None for no histogram.
        """
        self._contained = Contained(drops)
        self._last: Cleared | None = None
        # The snapshot being read: all points of an export come from one snapshot and have its time.
        self._read: Cleared | None = None
        self._reading = threading.Lock()
        self._starts = _Starts(began_at)
        self._bounds = bounds
        self._send_failures = send_failures
        self._waiting = waiting
        self._highest: dict[str, float] = {}
        # The highest values since the last export, and those that are being exported.
        self._peaks: dict[names.Metric, float] = {}
        self._read_peaks: Mapping[names.Metric, float] = {}
        # The exporter's own numbers when the snapshot was first read.
        self._failures: Mapping[str, int] = {}
        self._queued: Mapping[str, int] = {}
        # Without its own timer, which would start before the provider is set, and warn of that.
        self._reader = PeriodicExportingMetricReader(
            _OfSnapshot(exporter, self._starts, self._read_at, self._durations),
            export_interval_millis=math.inf,
            **_LIMITS,
        )
        self._provider = MeterProvider(
            [self._reader],
            resource=resource,
            # Inside a sampled span every point would get an exemplar, and every exemplar its own
            # series.
            exemplar_filter=AlwaysOffExemplarFilter(),
            # The plugin shuts it down. At exit the SDK itself would wait half a minute.
            shutdown_on_exit=False,
        )
        self._register(self._provider.get_meter(SCOPE, __version__), prices)
        every = positive("OTEL_METRIC_EXPORT_INTERVAL", round(interval * 1000)) / 1000
        self._closing, self._newer = threading.Event(), threading.Event()
        # Snapshots come as often as they are exported, most often: one that is a little late is
        # waited for, or it would never be exported. Exports that come more often wait for none.
        late = interval / 2 if every >= interval else 0.0
        self._thread = threading.Thread(
            target=self._collect_regularly,
            args=(every, late),
            name="daskscope-metrics",
            daemon=True,
        )
        self._thread.start()

    def observe(self, snapshot: Cleared) -> None:
        """Make the instruments read ``snapshot`` from now on. The first one is sent at once."""
        first = self._last is None
        # There may be several snapshots per export.
        peaks = self._peaks
        for metric, read in PEAKS.items():
            value = read(snapshot)
            if value is not None:
                peaks[metric] = max(value, peaks.get(metric, 0.0))
        self._last = snapshot
        self._newer.set()
        if first:
            self._collect()

    def shutdown(self, timeout: float) -> None:
        """Send once more and shut down, within about ``timeout`` seconds."""
        ends = time.monotonic() + timeout
        self._closing.set()
        self._newer.set()
        self._thread.join(timeout)
        self._provider.shutdown(timeout_millis=max(ends - time.monotonic(), 0.0) * 1000)

    def _collect_regularly(self, every: float, late: float) -> None:
        while not self._closing.wait(every):
            self._newer.clear()
            if self._last is self._read and not self._closing.is_set():
                self._newer.wait(late)
            self._collect()
        self._collect()

    def _collect(self) -> None:
        # An error loses nothing: the next export contains the totals.
        with self._contained, self._reading:
            # A snapshot that is read again must have the same values, because its time is the same.
            if self._read is not self._last:
                self._read = self._last
                self._read_peaks, self._peaks = self._peaks, {}
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
            **{metric: self._peak(metric) for metric in PEAKS},
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
                # Running time has a metric of its own: it also decreases, but a counter must not.
                # What is unsplit was exported as time without a prefix before.
                if activity not in ("running", "unsplit"):
                    yield (
                        seconds if row.prefix else self._grown(activity, seconds),
                        {names.TASK_PREFIX: row.prefix, names.TASK_ACTIVITY: activity},
                    )

    def _peak(self, metric: names.Metric) -> Callable[[Cleared], Values]:
        return lambda _: measured(self._read_peaks.get(metric))

    def _grown(self, activity: str, seconds: float) -> float:
        # Time without a prefix may decrease a little when a worker's heartbeat reports more task
        # time.
        highest = self._highest[activity] = max(seconds, self._highest.get(activity, 0.0))
        return highest

    def _callback(
        self, read: Callable[[Cleared], Values]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if self._read is not None:
                for value, attributes in read(self._read):
                    # Always a float, because InfluxDB fixes a field's type at its first point.
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
                min=None,  # type: ignore[arg-type] # omitted: not known since the start
                max=None,  # type: ignore[arg-type]
            )
            for row, attributes in rows
        ]


def _joined(counts: Sequence[int], bounds: tuple[float, ...]) -> list[int]:
    """Return the ``counts`` of all buckets, merged into the fewer buckets of ``bounds``."""
    joined = [0] * (len(bounds) + 1)
    for bound, count in zip((*names.DURATION_BOUNDS, math.inf), counts, strict=True):
        joined[bisect_left(bounds, bound)] += count
    return joined


class _Starts:
    """The start times of each series of a counter or histogram, in nanoseconds since the epoch.

    A series in the first export starts when the plugin started. A later series was 0 at the export
    before its first, so it starts then. A backend that takes a series for 0 at its start, as
    Prometheus can, thus assigns all counts to the right time.
    """

    def __init__(self, began_at: float) -> None:
        self._before = int(began_at * 1e9)
        # One per series, and series are bounded.
        self._starts: dict[Hashable, int] = {}

    def of(self, metric: str, attributes: Attributes, at: int) -> int:
        """Return the start of a series that has a point at the time ``at``."""
        series = metric, frozenset((attributes or {}).items())
        start = self._starts.setdefault(series, self._before)
        return min(start, at)  # the clock may have been set back

    def exported(self, at: int) -> None:
        """Note an export ``at`` that time: series that are new from now on start there."""
        self._before = at


class _OfSnapshot(MetricExporter):
    """Exports points with their snapshot's times, and adds the task duration histogram.

    The SDK gives a point the time of collection, up to an interval after the snapshot. A counter
    would then grow by two intervals in one, and not at all in the next. The SDK also starts a
    counter at the time of its first point, so its first value would have been counted in no time.

    The SDK has no observable histogram, and recording each task would cost the scheduler some ten
    microseconds per task. So daskscope counts the buckets itself, and this class adds them.
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
            # There is only one scope: the encoder has one entry per resource and scope.
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
        """Return ``metric`` with the time ``at``, in nanoseconds, and start times on its points."""
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
