"""Converts cumulative metrics to deltas, for backends that expect delta temporality."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, TypeAlias, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    Sum,
)

#: Kinds of metrics that are sent as deltas.
Kinds: TypeAlias = tuple[type[Sum] | type[Histogram], ...]

_Point: TypeAlias = NumberDataPoint | HistogramDataPoint


class DeltaExporter(MetricExporter):
    """Exports metrics of some ``kinds`` as deltas since the last successful export.

    The SDK makes deltas too, but loses those of a failed export. Here they are part of the next
    export. A backend that accepts an export without acknowledging it gets the deltas twice.
    """

    def __init__(self, exporter: MetricExporter, kinds: Kinds) -> None:
        super().__init__()
        self._exporter = exporter
        self._kinds = kinds
        # The totals at the last successful export. One per series, and series are bounded.
        self._taken: dict[Hashable, _Point] = {}

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Export metrics, and store the totals if the export succeeded."""
        totals: dict[Hashable, _Point] = {}
        increments = [
            replace(
                resource,
                scope_metrics=[
                    replace(
                        scope, metrics=[self._grown(metric, totals) for metric in scope.metrics]
                    )
                    for scope in resource.scope_metrics
                ],
            )
            for resource in metrics_data.resource_metrics
        ]
        result = self._exporter.export(MetricsData(increments), timeout_millis, **kwargs)
        if result is MetricExportResult.SUCCESS:
            self._taken |= totals
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the wrapped exporter."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Shut down the wrapped exporter."""
        self._exporter.shutdown(timeout_millis, **kwargs)

    def _grown(self, metric: Metric, totals: dict[Hashable, _Point]) -> Metric:
        """Return a metric as deltas, if its kind is sent so, and store its ``totals``."""
        data: Any = metric.data
        # Non-monotonic sums and gauges are sent as they are.
        if type(data) not in self._kinds or not getattr(data, "is_monotonic", True):
            return metric
        points: list[_Point] = []
        for point in data.data_points:
            series = metric.name, frozenset((point.attributes or {}).items())
            totals[series] = point
            taken = self._taken.get(series)
            points.append(point if taken is None else _since(taken, point))
        delta = replace(
            data, data_points=points, aggregation_temporality=AggregationTemporality.DELTA
        )
        return replace(metric, data=delta)


def _since(taken: _Point, point: _Point) -> _Point:
    since = taken.time_unix_nano
    if isinstance(point, NumberDataPoint):
        grown = point.value - cast(NumberDataPoint, taken).value
        return replace(point, start_time_unix_nano=since, value=grown)
    taken = cast(HistogramDataPoint, taken)
    return replace(
        point,
        start_time_unix_nano=since,
        count=point.count - taken.count,
        sum=point.sum - taken.sum,
        bucket_counts=[
            now - before
            for now, before in zip(point.bucket_counts, taken.bucket_counts, strict=True)
        ],
    )
