"""Time series from the InfluxDB that a collector writes to, by InfluxQL.

InfluxDB 1 and 2 both understand InfluxQL. The collector's exporter decides how a point is stored: a
metric is a measurement; a gauge is the field ``gauge`` and a running total the field ``counter``; a
histogram has the fields ``count``, ``sum`` and one for each bucket. Attributes are tags, and so are
those of the resource.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from daskscope import names
from daskscope_service.telemetry.influx_rows import OF_SENDER, InfluxDatabase
from daskscope_service.telemetry.influxql import any_of, name, text
from daskscope_service.telemetry.store import MOST_LINES, SeriesLine, widened

#: Fields that are not a line.
_BESIDE = frozenset(("start_time_unix_nano", "min", "max"))

_OWN = {metric.name: metric for metric in names.METRICS}


class InfluxSeries:
    """The :class:`~daskscope_service.telemetry.store.SeriesStore` of an InfluxDB."""

    def __init__(self, database: InfluxDatabase) -> None:
        self._database = database

    def close(self) -> None:
        """Close the connections."""
        self._database.influxdb.close()

    def query(
        self,
        workspace: str,
        cluster: str,
        metrics: Collection[str],
        since: float,
        until: float,
        step: float,
    ) -> dict[str, list[SeriesLine]]:
        """Return the lines of each metric; see :meth:`SeriesStore.query`."""
        called = self._database.names_of(workspace, [cluster])
        if not called:
            return {metric: [] for metric in metrics}
        who = (
            f"{any_of(names.SERVICE_NAMESPACE, called)} "
            f"AND {name(names.CLUSTER_ID)} = {text(cluster)}"
        )
        return {metric: self._lines(who, metric, since, until, step) for metric in metrics}

    def _lines(
        self, who: str, metric: str, since: float, until: float, step: float
    ) -> list[SeriesLine]:
        if not metric:
            return []  # InfluxDB takes an empty name for any
        measurement = f"FROM {name(metric)}"
        fields, tags = (
            [str(row[0]) for series in answers for row in series["values"]]
            for answers in self._database.influxdb.ask(
                self._database.name,
                f"SHOW FIELD KEYS {measurement}",
                f"SHOW TAG KEYS {measurement} WHERE {who}",
            )
        )
        fields = sorted(set(fields) - _BESIDE)
        tags = sorted(set(tags) - OF_SENDER)
        if not fields:
            return []
        begin, end = int(since * 1000), int(until * 1000)
        grouped = ", ".join((f"time({widened(since, until, step)}ms)", *map(name, tags)))
        most = math.ceil(MOST_LINES / len(fields))
        (rows,) = self._database.influxdb.ask(
            self._database.name,
            f"SELECT {', '.join(map(_value, fields))} {measurement} "
            f"WHERE {who} AND time >= {begin}ms AND time < {end}ms "
            f"GROUP BY {grouped} fill(none) SLIMIT {most}",
        )
        lines = _lines(rows, fields, _OWN.get(metric))
        lines.sort(key=lambda line: (json.dumps(line.attributes), line.field))
        return lines[:MOST_LINES]


def _lines(
    rows: Iterable[dict[str, Any]], fields: Sequence[str], own: names.Metric | None
) -> list[SeriesLine]:
    lines: list[SeriesLine] = []
    # InfluxDB does not distinguish an empty attribute from a missing one. Ours are never missing.
    always, unit = ((), "") if own is None else (own.attributes, own.unit)
    for series in rows:
        tags = series.get("tags", {})
        attributes = {key: value for key, value in tags.items() if value or key in always}
        times = [int(row[0]) for row in series["values"]]
        for place, field in enumerate(fields, 1):
            values = [row[place] for row in series["values"]]
            known = [i for i, value in enumerate(values) if value is not None]
            if known:
                lines.append(
                    SeriesLine(
                        attributes,
                        "value" if field in ("gauge", "counter") else field,
                        "gauge" if field == "gauge" else "counter",
                        unit,
                        times=[times[i] for i in known],
                        values=[float(values[i]) for i in known],
                    )
                )
    return lines


def _value(field: str) -> str:
    # A total only grows, so its greatest value in a step is its last.
    return f"{'mean' if field == 'gauge' else 'max'}({name(field)})"
