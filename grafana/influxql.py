"""InfluxQL over what the collector's ``influxdb`` exporter writes, made from ``names.py``.

A metric is a measurement of its name; its value is the field ``counter`` of what only grows, else
``gauge``. Attributes are tags. Log records lie in ``logs``, spans in ``spans``; of their attributes
only a few are tags, the rest is one field of JSON. A name or tag that is not there is an error
here, not an empty panel there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from daskscope import names
from daskscope.names import LogEvent, Metric

#: What the collector makes tags of log records and spans: see ``collector_config``.
LOG_TAGS = (
    names.SERVICE_NAMESPACE,
    names.CLUSTER_ID,
    names.CLUSTER_NAME,
    names.EVENT_NAME,
    names.USER_NAME,
    names.COMPUTATION_STATUS,
    names.TASK_PREFIX,
    names.EXCEPTION_TYPE,
    names.WORKER_LOSS_REASON,
)
SPAN_TAGS = (
    names.SERVICE_NAMESPACE,
    names.CLUSTER_ID,
    names.CLUSTER_NAME,
    names.USER_NAME,
    names.COMPUTATION_STATUS,
    names.TASK_PREFIX,
)

#: What distinguishes clusters, for people too.
CLUSTER = (names.CLUSTER_ID, names.CLUSTER_NAME, names.SERVICE_NAMESPACE)

#: Holds every panel to the chosen workspaces and clusters. A user chooses clusters: only log
#: records and spans of computations know users.
SCOPE = f'"{names.SERVICE_NAMESPACE}" =~ /^$workspace$/ AND "{names.CLUSTER_ID}" =~ /^$cluster$/'
_OF_USER = f'"{names.USER_NAME}" =~ /^$user$/'

#: The number in every log record that there is to count.
_COUNTED = "severity_number"


#: The end of the time that is shown, and as long before it as a report counts as one of now. Not a
#: step of a line: the last one has only begun, and half of the clusters have no point in it yet.
NOW = "time > ${__to}ms - $fresh AND time <= ${__to}ms"

#: The steps of lines. The last one ends with the time that is shown: as InfluxDB counts them by
#: itself, it has only begun, and growth and sums over clusters are too low in it. One unit more, as
#: the end belongs to the time. To leave the last step out by a condition on time does not do:
#: InfluxDB holds the points within it to the same condition.
STEPS = "time($__interval, ${__to}ms1u)"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    ``alias`` names its lines; ``[[tag_dask.worker.state]]`` in it stands for a tag's value. A
    ``table`` has rows instead of lines. ``spans``: from the database of spans.
    """

    text: str
    alias: str = ""
    table: bool = False
    spans: bool = False


def level(metric: Metric, *by: str, where: str = "", alias: str = "") -> Query:
    """Return the lines of a gauge, summed over clusters, one line for each value of ``by``."""
    return _lines(metric, f'last("{_field(metric, "gauge")}")', "sum", by, where, alias)


def highest(metric: Metric, *by: str, alias: str = "") -> Query:
    """Return the lines of a gauge where a sum makes no sense: the highest of all clusters."""
    return _lines(metric, f'max("{_field(metric, "gauge")}")', "max", by, "", alias)


def rate(metric: Metric, *by: str, where: str = "", alias: str = "", per: str = "1s") -> Query:
    """Return the lines of what a counter grows by ``per`` second or hour, summed over clusters.

    A series' first value is not in it: nobody saw it grow.
    """
    growth = f'non_negative_derivative(last("{_field(metric, "counter")}"), {per})'
    return _lines(metric, growth, "sum", by, where, alias)


def clusters(metric: Metric, condition: str = "", alias: str = "") -> Query:
    """Return the line of how many clusters there are for whose gauge ``condition`` holds.

    ``condition`` is on ``v``, the value: ``v = 0``.
    """
    inner = _inner(metric, f'last("{_field(metric, "gauge")}")', (STEPS,), "")
    only = f"{condition} AND $timeFilter" if condition else "$timeFilter"
    text = f'SELECT count("v") FROM ({inner}) WHERE {only} GROUP BY {STEPS} fill(none)'
    return Query(text, alias)


def now(metric: Metric, *, title: str, where: str = "") -> Query:
    """Return the row of a gauge's value now, summed over clusters."""
    inner = _inner(metric, f'last("{_field(metric, "gauge")}")', (), where, time=NOW)
    return Query(f'SELECT sum("v") AS "{title}" FROM ({inner}) WHERE {NOW}', table=True)


def clusters_now(metric: Metric, *, title: str, condition: str = "") -> Query:
    """Return the row of how many clusters there are now for whose gauge ``condition`` holds.

    ``condition`` is on ``v``, the value: ``v = 0``.
    """
    inner = _inner(metric, f'last("{_field(metric, "gauge")}")', (), "", time=NOW)
    only = f"{condition} AND {NOW}" if condition else NOW
    return Query(f'SELECT count("v") AS "{title}" FROM ({inner}) WHERE {only}', table=True)


def rate_now(metric: Metric, *, title: str, where: str = "", seconds: int = 1) -> Query:
    """Return the row of what a counter grows by in ``seconds`` now, summed over clusters.

    Of each series from its first report that counts to its last, by the time between the two.
    """
    counter = _field(metric, "counter")
    steps = _inner(
        metric,
        f'non_negative_difference("{counter}") AS "d", elapsed("{counter}", 1ms) AS "e"',
        (),
        where,
        named=True,
        time=NOW,
    )
    tags = _tags(*CLUSTER, *metric.attributes)
    each = (
        f'SELECT sum("d") / sum("e") * {seconds * 1000} AS "v" FROM ({steps}) '
        f"WHERE {NOW} GROUP BY {tags}"
    )
    return Query(f'SELECT sum("v") AS "{title}" FROM ({each}) WHERE {NOW}', table=True)


def latest(metric: Metric, *by: str, title: str, where: str = "") -> Query:
    """Return rows of a gauge's last value for each value of ``by``, in the column ``title``."""
    return _rows(metric, f'last("{_field(metric, "gauge")}")', by, title, where)


def so_far(metric: Metric, *by: str, title: str, where: str = "") -> Query:
    """Return rows of what a counter has reached since its clusters began."""
    return _rows(metric, f'max("{_field(metric, "counter")}")', by, title, where)


def grown(metric: Metric, *by: str, title: str, where: str = "") -> Query:
    """Return rows of what a counter grew by in the time that is shown.

    For counters that are there from a cluster's start on: what comes later begins at its first
    value.
    """
    return _rows(metric, f'spread("{_field(metric, "counter")}")', by, title, where)


def heard(metric: Metric, *by: str, title: str) -> Query:
    """Return rows of how often a gauge was reported in about the last five minutes (four to six); 0
    for clusters that were silent in them.
    """
    _check(by, metric.attributes + names.RESOURCE_ATTRIBUTES, metric.name)
    tags = _tags(*by)
    # Not steps that end with the time shown, as STEPS: InfluxDB finds no last one of those.
    steps = (
        f'SELECT count("{_field(metric, "gauge")}") AS "n" FROM "{metric.name}" '
        f"WHERE {SCOPE} AND $timeFilter GROUP BY time(2m), {tags} fill(0)"
    )
    # The last step may have only begun.
    three = f'SELECT moving_average("n", 3) AS "m" FROM ({steps}) WHERE $timeFilter GROUP BY {tags}'
    now = f'SELECT last("m") AS "v" FROM ({three}) WHERE $timeFilter GROUP BY {tags}'
    text = f'SELECT sum("v") AS "{title}" FROM ({now}) WHERE $timeFilter GROUP BY {tags}'
    return Query(text, table=True)


def newest(metric: Metric, *by: str, title: str) -> Query:
    """Return rows of a gauge's last value with the time at which it was reported."""
    _check(by, metric.attributes + names.RESOURCE_ATTRIBUTES, metric.name)
    text = (
        f'SELECT last("{_field(metric, "gauge")}") AS "{title}" FROM "{metric.name}" '
        f"WHERE {SCOPE} AND $timeFilter GROUP BY {_tags(*by)}"
    )
    return Query(text, table=True)


def buckets(metric: Metric) -> Query:
    """Return one row of a histogram's buckets: how many values lay at or below each bound."""
    if metric.instrument != "histogram":
        raise ValueError(f"{metric.name} is no histogram")
    bounds = [f"{bound:g}" for bound in names.DURATION_BOUNDS]
    inner = ", ".join(f'max("{bound}") AS "{bound}"' for bound in bounds)
    outer = ", ".join(f'sum("{bound}") AS "≤ {bound} s"' for bound in bounds)
    tags = _tags(names.CLUSTER_ID, *metric.attributes)
    text = (
        f'SELECT {outer} FROM (SELECT {inner} FROM "{metric.name}" '
        f"WHERE {SCOPE} AND $timeFilter GROUP BY {tags}) WHERE $timeFilter"
    )
    return Query(text, table=True)


def percentile(metric: Metric, share: float, *by: str, alias: str = "") -> Query:
    """Return the lines of the bound below which ``share`` of a histogram's values of a step lie.

    InfluxQL cannot interpolate: it is a bound of a bucket, and at most the highest one. Each bucket
    that holds less than that share adds its width; ``ceil`` is 1 where its argument is above 0.
    """
    if metric.instrument != "histogram":
        raise ValueError(f"{metric.name} is no histogram")
    _check(by, metric.attributes + names.RESOURCE_ATTRIBUTES, metric.name)
    bounds = names.DURATION_BOUNDS
    fields = {f"b{number}": f"{bound:g}" for number, bound in enumerate(bounds[:-1])}
    fields["n"] = "count"
    grown = ", ".join(
        f'non_negative_difference(last("{field}")) AS "{name}"' for name, field in fields.items()
    )
    inner = _inner(metric, grown, (STEPS,), "", named=True)
    summed = ", ".join(f'sum("{name}") AS "{name}"' for name in fields)
    grouped = ", ".join([STEPS, *(f'"{tag}"' for tag in by)])
    steps = f"SELECT {summed} FROM ({inner}) WHERE $timeFilter GROUP BY {grouped} fill(none)"
    widths = [
        f'{upper - lower:g} * ceil({share:g} - "b{number}" / "n")'
        for number, (lower, upper) in enumerate(pairwise(bounds))
    ]
    value = f"{bounds[0]:g} + {' + '.join(widths)}"
    last = f" GROUP BY {_tags(*by)}" if by else ""
    text = f'SELECT {value} AS "v" FROM ({steps}) WHERE "n" > 0 AND $timeFilter{last}'
    return Query(text, alias or " ".join(f"[[tag_{tag}]]" for tag in by))


def level_rows(metric: Metric, *, title: str, where: str = "") -> Query:
    """Return the rows of a gauge over time, summed over clusters, in the column ``title``."""
    inner = _inner(metric, f'last("{_field(metric, "gauge")}")', (STEPS,), where)
    text = (
        f'SELECT sum("v") AS "{title}" FROM ({inner}) WHERE $timeFilter GROUP BY {STEPS} fill(none)'
    )
    return Query(text, table=True)


def mean(metric: Metric, *by: str, title: str) -> Query:
    """Return rows of a histogram's mean since its clusters began, in the column ``title``."""
    if metric.instrument != "histogram":
        raise ValueError(f"{metric.name} is no histogram")
    _check(by, metric.attributes + names.RESOURCE_ATTRIBUTES, metric.name)
    inner = _inner(metric, 'max("sum") AS "s", max("count") AS "c"', (), "", named=True)
    text = (
        f'SELECT sum("s") / sum("c") AS "{title}" FROM ({inner}) '
        f"WHERE $timeFilter GROUP BY {_tags(*by)}"
    )
    return Query(text, table=True)


def events(event: LogEvent, *by: str, where: str = "", alias: str = "") -> Query:
    """Return the lines of how many such log records there were."""
    _check(by, LOG_TAGS, "logs")
    grouped = ", ".join([STEPS, *(f'"{tag}"' for tag in by)])
    text = (
        f'SELECT count("{_COUNTED}") FROM "logs" WHERE {_of(event, where)} '
        f"GROUP BY {grouped} fill(0)"
    )
    return Query(text, alias)


def number_of(event: LogEvent, *by: str, title: str, where: str = "") -> Query:
    """Return rows of how many such log records there were in the time that is shown."""
    _check(by, LOG_TAGS, "logs")
    grouped = f" GROUP BY {_tags(*by)}" if by else ""
    counted = f'count("{_COUNTED}") AS "{title}"'
    text = f'SELECT {counted} FROM "logs" WHERE {_of(event, where)}{grouped}'
    return Query(text, table=True)


#: Holds rows to the computation that is chosen, where one can be: it is in their attributes.
OF_COMPUTATION = f'"attributes" =~ /"{re.escape(names.COMPUTATION_ID)}":"$computation"/'


def records(event: LogEvent, *tags: str, where: str = "", limit: int = 200) -> Query:
    """Return such log records, the newest first: text, attributes as JSON, and ``tags``."""
    _check(tags, LOG_TAGS, "logs")
    shown = ", ".join(['"body"', '"attributes"', *(f'"{tag}"::tag' for tag in tags)])
    text = f'SELECT {shown} FROM "logs" WHERE {_of(event, where)} ORDER BY time DESC LIMIT {limit}'
    return Query(text, table=True)


def slowest(span: names.SpanKind, *tags: str, where: str, limit: int = 50) -> Query:
    """Return the spans of that kind that took longest: seconds, attributes as JSON, their trace's
    id, ``tags``.
    """
    _check(tags, SPAN_TAGS, "spans")
    shown = ", ".join(['"attributes"', '"trace_id"', *(f'"{tag}"' for tag in tags)])
    user = f" AND {_OF_USER}" if names.USER_NAME in span.attributes else ""
    text = (
        f'SELECT top("duration_nano", {limit}) AS "duration", {shown} FROM "spans" '
        f'WHERE "span.name" =~ /^{re.escape(span.name)} / AND {where} AND {SCOPE}{user} '
        "AND $timeFilter"
    )
    return Query(text, table=True, spans=True)


def equals(tag: str, *values: str) -> str:
    """Return the condition that a tag has one of ``values``."""
    return "(" + " OR ".join(f"\"{tag}\" = '{value}'" for value in values) + ")"


def _field(metric: Metric, expected: str) -> str:
    field = {"counter": "counter", "updowncounter": "gauge", "gauge": "gauge"}.get(
        metric.instrument
    )
    if field != expected:
        raise ValueError(f"{metric.name} is a {metric.instrument}: it has no field {expected}")
    return expected


def _check(wanted: tuple[str, ...], known: tuple[str, ...], where: str) -> None:
    if missing := [name for name in wanted if name not in known]:
        raise ValueError(f"{where} has no tag {', '.join(missing)}")


def _tags(*tags: str) -> str:
    return ", ".join(f'"{tag}"' for tag in dict.fromkeys(tags))


def _inner(
    metric: Metric,
    value: str,
    groups: tuple[str, ...],
    where: str,
    *,
    named: bool = False,
    time: str = "$timeFilter",
) -> str:
    """Return the query of each series by itself: only sums of such make sense."""
    value = value if named else f'{value} AS "v"'
    conditions = " AND ".join(part for part in (SCOPE, where, time) if part)
    tags = _tags(*CLUSTER, *metric.attributes)
    fill = " fill(none)" if groups else ""
    return (
        f'SELECT {value} FROM "{metric.name}" WHERE {conditions} '
        f"GROUP BY {', '.join([*groups, tags])}{fill}"
    )


def _lines(
    metric: Metric, value: str, total: str, by: tuple[str, ...], where: str, alias: str
) -> Query:
    _check(by, metric.attributes + names.RESOURCE_ATTRIBUTES, metric.name)
    inner = _inner(metric, value, (STEPS,), where)
    grouped = ", ".join([STEPS, *(f'"{tag}"' for tag in by)])
    text = f'SELECT {total}("v") FROM ({inner}) WHERE $timeFilter GROUP BY {grouped} fill(none)'
    return Query(text, alias or " ".join(f"[[tag_{tag}]]" for tag in by))


def _rows(metric: Metric, value: str, by: tuple[str, ...], title: str, where: str) -> Query:
    _check(by, metric.attributes + names.RESOURCE_ATTRIBUTES, metric.name)
    if title == "Time":
        raise ValueError("Grafana has a column Time in every table: a value needs another title")
    inner = _inner(metric, value, (), where)
    grouped = f" GROUP BY {_tags(*by)}" if by else ""
    return Query(
        f'SELECT sum("v") AS "{title}" FROM ({inner}) WHERE $timeFilter{grouped}', table=True
    )


def _of(event: LogEvent, where: str) -> str:
    user = _OF_USER if names.USER_NAME in event.attributes else ""
    parts = (equals(names.EVENT_NAME, event.name), SCOPE, user, where, "$timeFilter")
    return " AND ".join(part for part in parts if part)
