"""Turns OTLP metrics into rows: a point is a series' id, a time in milliseconds and a number.

The count, the sum and each bucket of a histogram are separate series; a bucket counts all values at
or below its bound, as in Prometheus.

Over 400 lines: each kind of metric is read in its own way, and all share the checks of points.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from sqlalchemy import Engine

from daskscope_service.db import schema
from daskscope_service.db.rows import select_in
from daskscope_service.db.statements import Upsert
from daskscope_service.ingest.otlp import (
    EARLIEST_NANOSECONDS,
    Stored,
    cluster_of,
    json,
    latest_nanoseconds,
    text,
    without_nul,
)
from daskscope_service.ingest.quotas import Quotas
from daskscope_service.ingest.series_memory import Family, Ids, SeriesMemory
from daskscope_service.ingest.writer import Outdated, Writer
from daskscope_service.web.problems import Problem

#: How many attribute sets one query asks for: databases limit the number of parameters.
_ASKED_AT_ONCE = 500

#: Bytes that cluster, metric, unit, field and attributes of a series may have together: PostgreSQL
#: accepts 2,700 in an index, including the workspace.
MAX_SERIES_BYTES = 2_000

#: The most bounds of a histogram: each is a separate series.
MAX_BOUNDS = 200

#: The largest absolute value of a point: so any number of them can be added up.
MAX_NUMBER = 1e30

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_NO_VALUE = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_MS = 1_000_000

#: How a serialized point with a number begins: perhaps its start, then its time and its number,
#: each after its tag. Then comes what identifies its series, if there is nothing else.
_TIME_AND_VALUE = struct.Struct("<BQBd")
_INT = struct.Struct("<q")
_HAS_START, _HAS_TIME, _HAS_DOUBLE, _HAS_INT = 0x11, 0x19, 0x21, 0x31

#: Before each point are a tag of one byte and its length: seven bits in each byte, the lowest
#: first, and this bit in all bytes but the last.
#: (https://protobuf.dev/programming-guides/encoding/)
_GOES_ON = 0x80

#: A key, which identifies a series, with more bytes is replaced by its hash.
_LONGEST_KEY = 500

_NOTHING: Ids = {}

#: The fields of a point that do not identify its series.
_OF_ALL = ("start_time_unix_nano", "time_unix_nano", "exemplars", "flags")
_OF_NUMBERS = (*_OF_ALL, "as_double", "as_int")
_OF_HISTOGRAMS = (*_OF_ALL, "count", "sum", "bucket_counts", "min", "max")


class _Series(NamedTuple):
    """What identifies a series and, with ``kind`` and ``unit``, what is stored of it."""

    cluster: str
    metric: str
    field: str
    kind: str
    unit: str
    attributes: str

    @property
    def fits(self) -> bool:
        """Return whether it is short enough for an index."""
        names = (self.cluster, self.metric, self.field, self.unit, self.attributes)
        return sum(len(name.encode()) for name in names) <= MAX_SERIES_BYTES


class _Waiting(NamedTuple):
    """A point of series whose ids are not known yet: they will be cached by family and key."""

    family: Family
    key: bytes
    series: list[_Series]
    time: int
    values: list[float | None]


@dataclass(slots=True)
class _Decoded:
    """A request's points: rows if their series are known, and the others."""

    latest: int
    rows: list[tuple[int, int, float]] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)
    seen: int = 0
    kept: int = 0


class MetricStore:
    """Stores metrics."""

    def __init__(self, engine: Engine, writer: Writer, quotas: Quotas) -> None:
        self._engine = engine
        self._writer = writer
        self._quotas = quotas
        self._memory = SeriesMemory(engine)
        self._series = Upsert(
            engine,
            schema.series,
            key=["workspace", "cluster", "metric", "field", "attributes"],
            columns=["workspace", *_Series._fields],
        )

    def keep(self, request: ExportMetricsServiceRequest, workspace: str) -> Stored:
        """Store the points of ``request`` permanently; this may change ``request``.

        Raises what :meth:`Writer.write` raises.
        """
        memory = self._memory
        if memory.spent:
            memory = self._memory = SeriesMemory(self._engine)
        places = taken = used = beyond = 0
        try:
            decoded = self._decode(request, workspace, memory)
            if decoded.waiting:
                new = len({one for point in decoded.waiting for one in point.series})
                places = taken = self._quotas.take(workspace, "series", new)
                if places < new:
                    beyond, taken = self._leave_out_new(decoded, workspace, places)
            with self._writer.place():
                if decoded.waiting:
                    decoded.rows += self._learn(decoded.waiting, workspace, memory)
                    used = taken
                decoded.rows.sort()  # in the table's order: neighbours share a page
                self._writer.write({memory.points: decoded.rows})
        except Outdated:
            self._memory = SeriesMemory(self._engine)
            why = "Series were removed at the same time. Nothing was stored; send this again."
            raise Problem(503, why, headers={"Retry-After": "1"}) from None
        finally:
            self._quotas.settle(workspace, "series", places, used)
        rejected = decoded.seen - decoded.kept
        if not rejected:
            return Stored()
        if beyond:
            self._quotas.problem(workspace, "series")  # this counts the refusal
            return Stored(rejected, self._quotas.sentence(workspace, "series"))
        return Stored(
            rejected,
            f"the service stores only numbers up to {MAX_NUMBER:g}, of gauges, sums and "
            f"histograms with at most {MAX_BOUNDS} bounds that ascend, with names and attributes "
            f"of at most {MAX_SERIES_BYTES} bytes and a time between 2015 and tomorrow",
        )

    def _decode(
        self, request: ExportMetricsServiceRequest, workspace: str, memory: SeriesMemory
    ) -> _Decoded:
        decoded = _Decoded(latest_nanoseconds())
        for group in request.resource_metrics:
            cluster = cluster_of(group.resource)
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    is_histogram = kind == "histogram"
                    family = (workspace, cluster, metric.name, is_histogram)
                    # A family without stored series has no cached ids.
                    known = memory.known.get(family, _NOTHING)
                    if kind == "gauge":
                        _numbers(metric.gauge, metric, "gauge", family, known, decoded)
                    elif kind == "sum":
                        total = metric.sum
                        grows = total.is_monotonic and (
                            total.aggregation_temporality == _CUMULATIVE
                        )
                        kept_as = "counter" if grows else "gauge"
                        _numbers(total, metric, kept_as, family, known, decoded)
                    elif is_histogram:
                        _histograms(metric.histogram, metric, family, known, decoded)
                    elif kind is not None:
                        decoded.seen += len(getattr(metric, kind).data_points)
        return decoded

    def _leave_out_new(self, decoded: _Decoded, workspace: str, places: int) -> tuple[int, int]:
        """Leave out the points of series that are not stored yet and find none of the ``places``.

        Return how many points are left out, and how many places the others take.
        """
        wanted = {one for point in decoded.waiting for one in point.series}
        there = self._ids(wanted, workspace)
        taken: set[_Series] = set()
        kept: list[_Waiting] = []
        for point in decoded.waiting:
            new = {
                one
                for one in point.series
                if (one.cluster, one.metric, one.field, one.attributes) not in there
            }
            if len(taken) + len(new - taken) <= places:
                taken |= new
                kept.append(point)
        beyond = len(decoded.waiting) - len(kept)
        decoded.waiting = kept
        decoded.kept -= beyond
        return beyond, len(taken)

    def _learn(
        self, waiting: Sequence[_Waiting], workspace: str, memory: SeriesMemory
    ) -> list[tuple[int, int, float]]:
        """Store the series of ``waiting``, cache them, and return the rows of the points."""
        # The series are committed before any process refers to them.
        wanted = {one for point in waiting for one in point.series}
        self._writer.write({self._series: [(workspace, *one) for one in sorted(wanted)]})
        # A histogram names all of its series at once, and each has the names again.
        self._quotas.note(workspace, sum(sum(map(len, one)) for one in wanted))
        ids = self._ids(wanted, workspace)
        rows: list[tuple[int, int, float]] = []
        try:
            for point in waiting:
                of_point = tuple(
                    ids[one.cluster, one.metric, one.field, one.attributes] for one in point.series
                )
                memory.remember(point.family, point.key, of_point)
                rows += _rows(of_point, point.time, point.values)
        except KeyError:  # removed between the write and the query
            raise Outdated from None
        return rows

    def _ids(self, wanted: Iterable[_Series], workspace: str) -> dict[tuple[str, ...], int]:
        table = schema.series
        attributes: dict[tuple[str, str], set[str]] = {}
        for one in wanted:
            attributes.setdefault((one.cluster, one.metric), set()).add(one.attributes)
        ids: dict[tuple[str, ...], int] = {}
        with self._engine.connect() as connection:
            for (cluster, metric), texts in attributes.items():
                ordered = sorted(texts)
                for first in range(0, len(ordered), _ASKED_AT_ONCE):
                    statement = select_in(
                        workspace, table, table.c.id, table.c.field, table.c.attributes
                    ).where(
                        table.c.cluster == cluster,
                        table.c.metric == metric,
                        table.c.attributes.in_(ordered[first : first + _ASKED_AT_ONCE]),
                    )
                    for id, name, labels in connection.execute(statement):
                        ids[cluster, metric, name, labels] = id
        return ids


def _numbers(
    data: Gauge | Sum,
    metric: Metric,
    kind: str,
    family: Family,
    known: Ids,
    decoded: _Decoded,
) -> None:
    # The hot loop: every name in it is looked up for every point.
    add = decoded.rows.append
    latest = decoded.latest
    least, most, earliest = -MAX_NUMBER, MAX_NUMBER, EARLIEST_NANOSECONDS
    read = _TIME_AND_VALUE.unpack_from
    kept = end = 0
    # All points are serialized at once: serializing each takes 1.4 times as long, and reading its
    # fields far longer.
    whole = data.SerializeToString()
    for point_number in range(len(data.data_points)):
        length, begin = whole[end + 1], end + 2
        if length >= _GOES_ON:
            length, begin = _length_at(whole, end + 1)
        end = begin + length
        start = begin + 9 if length and whole[begin] == _HAS_START else begin
        if end - start >= _TIME_AND_VALUE.size:
            has_time, nanoseconds, has, number = read(whole, start)
            ids = known.get(whole[start + 18 : end]) if has_time == _HAS_TIME else None
            if ids is not None and has in (_HAS_DOUBLE, _HAS_INT):
                if has == _HAS_INT:
                    (number,) = _INT.unpack_from(whole, start + 10)
                if least <= number <= most and earliest <= nanoseconds <= latest:
                    add((ids[0], nanoseconds // _MS, number))
                    kept += 1
                    continue
        point = data.data_points[point_number]
        time = point.time_unix_nano // _MS
        # Only one of the two is set; the other reads as 0.
        value = point.as_double or point.as_int
        if (
            not least <= value <= most
            or point.flags & _NO_VALUE
            or not earliest <= point.time_unix_nano <= latest
        ):
            continue
        kept += 1
        key = _series_key(point, _OF_NUMBERS)
        ids = known.get(key)
        if ids is not None:
            add((ids[0], time, value))
            continue
        series = _named(metric, family[1], "value", kind, _sorted(point.attributes))
        if not series.fits:
            kept -= 1
            continue
        decoded.waiting.append(_Waiting(family, key, [series], time, [value]))
    decoded.seen += len(data.data_points)
    decoded.kept += kept


def _length_at(whole: bytes, at: int) -> tuple[int, int]:
    """Return a length of several bytes at the place ``at``, and the place after it."""
    length = shift = 0
    while whole[at] >= _GOES_ON:
        length |= (whole[at] - _GOES_ON) << shift
        at, shift = at + 1, shift + 7
    return length | whole[at] << shift, at + 1


def _histograms(
    histogram: Histogram, metric: Metric, family: Family, known: Ids, decoded: _Decoded
) -> None:
    kind = "counter" if histogram.aggregation_temporality == _CUMULATIVE else "gauge"
    for point in histogram.data_points:
        decoded.seen += 1
        time = point.time_unix_nano // _MS
        if (
            len(point.bucket_counts) != len(point.explicit_bounds) + 1
            or len(point.explicit_bounds) > MAX_BOUNDS
            or not -MAX_NUMBER <= point.sum <= MAX_NUMBER
            or point.flags & _NO_VALUE
            or not EARLIEST_NANOSECONDS <= point.time_unix_nano <= decoded.latest
        ):
            continue
        values = _values(point)
        key = _series_key(point, _OF_HISTOGRAMS)
        ids = known.get(key)
        if ids is not None:
            decoded.kept += 1
            decoded.rows += _rows(ids, time, values)
            continue
        if not _ascend(point.explicit_bounds):  # known series were checked
            continue
        attributes = _sorted(point.attributes)
        fields = ["count", "sum", *map(_bound, point.explicit_bounds), "+Inf"]
        series = [_named(metric, family[1], field, kind, attributes) for field in fields]
        if not all(one.fits for one in series):
            continue
        decoded.kept += 1
        decoded.waiting.append(_Waiting(family, key, series, time, values))


def _ascend(bounds: Sequence[float]) -> bool:
    return all(map(isfinite, bounds)) and all(a < b for a, b in pairwise(bounds))


def _named(metric: Metric, cluster: str, field: str, kind: str, attributes: str) -> _Series:
    name, unit = without_nul(metric.name), without_nul(metric.unit)
    return _Series(cluster, name, field, kind, unit, attributes)


def _series_key(point: NumberDataPoint | HistogramDataPoint, others: Sequence[str]) -> bytes:
    # A point without ``others`` is its attributes (and a histogram's bounds). Serializing that in
    # one call is twice as fast as reading each attribute.
    for name in others:
        point.ClearField(name)  # type: ignore[arg-type]
    key: bytes = point.SerializeToString()
    # A key may have any length: it includes fields that protobuf does not know.
    return key if len(key) <= _LONGEST_KEY else hashlib.blake2b(key, digest_size=32).digest()


def _rows(
    ids: Sequence[int], time: int, values: Sequence[float | None]
) -> list[tuple[int, int, float]]:
    pairs = zip(ids, values, strict=True)
    return [(id, time, value) for id, value in pairs if value is not None]


def _values(point: HistogramDataPoint) -> list[float | None]:
    # Counts may be larger than the integers of databases.
    values: list[float | None] = [float(point.count), point.sum if point.HasField("sum") else None]
    total = 0.0
    for count in point.bucket_counts:
        total += count
        values.append(total)
    return values


def _bound(bound: float) -> str:
    # In the form of the collector's InfluxDB exporter: 0.1, 10, and not 10.0.
    return repr(bound).removesuffix(".0")


def _sorted(attributes: Iterable[KeyValue]) -> str:
    # Values as text, as InfluxDB stores them: they identify a series and are not computed with.
    return json(dict(sorted((a.key, text(a.value)) for a in attributes)))
