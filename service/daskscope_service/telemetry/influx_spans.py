"""Spans from the InfluxDB that a collector writes to, in its database of short retention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from daskscope import names
from daskscope_service.telemetry.influx_rows import (
    OF_SENDER,
    UNNAMED,
    InfluxDatabase,
    attributes_of,
)
from daskscope_service.telemetry.influxql import any_of, text
from daskscope_service.telemetry.spans import MOST_SPANS, Span, Trace, span_id_of

#: How many spans of a computation are read; the most important of them are returned.
_MOST_READ = 20_000

#: Columns that are no attributes.
_BESIDE = OF_SENDER | {
    *("time", "trace_id", "span_id", "parent_span_id", "span.name", "span.kind", "trace_state"),
    *("duration_nano", "end_time_unix_nano", "otel.status_code", "otel.status_description"),
    *("attributes", "dropped_attributes_count", "dropped_events_count", "dropped_links_count"),
}

_SPANS = 'FROM "spans"'


class InfluxSpans:
    """The :class:`~daskscope_service.telemetry.spans.SpanReader` of an InfluxDB."""

    def __init__(self, database: InfluxDatabase) -> None:
        self._database = database

    def of_computation(
        self, workspace: str, trace_id: str, computation_id: str, most: int = MOST_SPANS
    ) -> Trace:
        """Return the spans of a computation; see :meth:`SpanReader.of_computation`."""
        if not re.fullmatch("[0-9A-Za-z-]+", computation_id):
            return Trace()  # the plugin makes no such id
        # A caller's trace may hold many computations; each span has the id of its own.
        rows = self._database.rows(
            f"SELECT * {_SPANS} WHERE trace_id = {text(trace_id)} "
            f"AND {any_of(names.SERVICE_NAMESPACE, {workspace, UNNAMED})} "
            f'AND "attributes" =~ /{computation_id}/ LIMIT {_MOST_READ}',
        )
        spans = [_span(row) for row in self._database.readable(workspace, rows)]
        root = span_id_of(computation_id)
        groups = {span.span_id for span in spans if span.parent_span_id == root}
        upper = [span for span in spans if span.span_id == root or span.span_id in groups]
        upper.sort(key=lambda span: (span.span_id != root, span.started_at, span.span_id))
        tasks = [span for span in spans if span.parent_span_id in groups]
        tasks.sort(
            key=lambda one: (one.status != "error", one.started_at - one.stopped_at, one.span_id)
        )
        left = max(most - len(upper), 0)
        kept = sorted(tasks[:left], key=lambda span: (span.started_at, span.span_id))
        cut = len(upper) > most or len(tasks) > left or len(rows) == _MOST_READ
        return Trace((*upper[:most], *kept), more=cut)


def _span(row: Mapping[str, Any]) -> Span:
    return Span(
        row["span_id"],
        row.get("parent_span_id"),
        row.get("span.name", ""),
        row["time"] / 1e9,
        row.get("end_time_unix_nano", row["time"]) / 1e9,
        row.get("otel.status_code", "unset").lower(),
        attributes_of(row, _BESIDE),
    )
