"""Panels as values, and what Grafana's classic JSON makes of them.

Only what the dashboards use. Field by field it is held against the types that Grafana publishes:
``tests/grafana/test_schema.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote

from grafana.influxql import Query
from grafana.transformations import Json, without

#: A point comes every ten seconds by default: a shorter step would leave clusters out of some.
MIN_STEP = "30s"

METRICS_SOURCE: Json = {"type": "influxdb", "uid": "${metrics}"}
SPANS_SOURCE: Json = {"type": "influxdb", "uid": "${spans}"}


def _explored(source: str, asked: str) -> str:
    """Return the address at which Grafana shows what is ``asked`` of a data source."""
    panes = (
        f'{{"a":{{"datasource":"${{{source}}}","queries":[{{"refId":"A",'
        f'"datasource":{{"type":"{source}","uid":"${{{source}}}"}},{asked}}}],'
        '"range":{"from":"${__from}","to":"${__to}"}}}'
    )
    # Variables stand for values in it, and are not escaped.
    return f"/explore?schemaVersion=1&orgId=1&panes={quote(panes, safe='${}')}"


#: Carried from one dashboard to the next.
CARRIED = (
    "${metrics:queryparam}&${spans:queryparam}&${workspace:queryparam}&${fresh:queryparam}"
    "&${__url_time_range}"
)
TO_CLUSTER = f"/d/daskscope-cluster?var-cluster=${{__value.raw:percentencode}}&{CARRIED}"
#: On dashboards of one cluster.
TO_COMPUTATION_PAGE = (
    "${service}/clusters/${cluster:percentencode}/computations/${__value.raw:percentencode}"
)
#: To what stores traces, where there is one: its page of one trace.
TO_TEMPO = _explored("tempo", '"queryType":"traceql","query":"${__value.raw}"')
TO_JAEGER = _explored("jaeger", '"query":"${__value.raw}"')
TO_CLUSTER_PAGE = "${service}/clusters/${__value.raw:percentencode}"


_NO_LEGEND: Json = {
    "showLegend": False,
    "displayMode": "list",
    "placement": "bottom",
    "calcs": [],
}


@dataclass(frozen=True, slots=True)
class Link:
    """Where a value leads. In the address ``${__value.raw}`` stands for the value."""

    title: str
    url: str
    new_tab: bool = False

    def json(self) -> Json:
        """Return the link as Grafana reads it."""
        return {"title": self.title, "url": self.url, "targetBlank": self.new_tab}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What all panels have. ``width`` of 24 columns; ``height`` in units of 30 pixels.

    ``empty`` is shown where there is no data: absent is not zero, and says why.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    empty: str
    width: int
    height: int
    unit: str = "none"

    kind: str = field(default="", init=False)

    def options(self) -> Json:
        """Return the options of the panel's kind."""
        return {}

    def defaults(self) -> Json:
        """Return what holds for all fields."""
        return {"unit": self.unit, "noValue": self.empty}

    def overrides(self) -> list[Json]:
        """Return what holds for some fields."""
        return []

    def transformations(self) -> list[Json]:
        """Return what is made of the rows before they are shown."""
        return []

    def json(self, id: int, x: int, y: int) -> Json:
        """Return the panel as Grafana reads it."""
        panel: Json = {
            "id": id,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SPANS_SOURCE if self.queries[0].spans else METRICS_SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "interval": MIN_STEP,
            "targets": [
                _target(query, ref) for query, ref in zip(self.queries, "ABCDEFGH", strict=False)
            ],
            "fieldConfig": {"defaults": self.defaults(), "overrides": self.overrides()},
            "options": self.options(),
        }
        if transformations := self.transformations():
            panel["transformations"] = transformations
        return panel


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat(Panel):
    """One number: the last of a line, or of one row.

    ``bad`` colours it from that value on.
    """

    width: int = 4
    height: int = 4
    bad: float | None = None
    decimals: int | None = None
    links: tuple[Link, ...] = ()

    kind: str = field(default="stat", init=False)

    def options(self) -> Json:
        return {
            "reduceOptions": {
                "values": False,
                "calcs": ["lastNotNull"],
                "fields": "",
            },
            "orientation": "auto",
            "textMode": "value",
            "colorMode": "value" if self.bad is not None else "none",
            "graphMode": "none" if any(query.table for query in self.queries) else "area",
            "justifyMode": "auto",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
        }

    def defaults(self) -> Json:
        options = {**Panel.defaults(self), "color": {"mode": "thresholds"}}
        steps: list[Json] = [{"color": "green", "value": None}]
        if self.bad is not None:
            steps.append({"color": "red", "value": self.bad})
        options["thresholds"] = {"mode": "absolute", "steps": steps}
        if self.decimals is not None:
            options["decimals"] = self.decimals
        if self.links:
            options["links"] = [link.json() for link in self.links]
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Panel):
    """Lines over time; ``stacked`` where they add up, ``bars`` where each step is a count.

    A line across says from where on a value is ``bad``. ``computed`` is made of rows of several
    queries.
    """

    width: int = 12
    height: int = 8
    stacked: bool = False
    bars: bool = False
    least: float | None = 0
    bad: float | None = None
    computed: tuple[Json, ...] = ()

    kind: str = field(default="timeseries", init=False)

    def options(self) -> Json:
        return {
            "legend": {
                "showLegend": True,
                "displayMode": "list",
                "placement": "bottom",
                # No last value: the last step has only begun.
                "calcs": [],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }

    def defaults(self) -> Json:
        custom: Json = {
            "drawStyle": "bars" if self.bars else "line",
            "fillOpacity": 60 if self.bars else 15 if self.stacked else 0,
            "lineWidth": 1,
            "showPoints": "auto",
            # A gap is a gap: what was not reported is not drawn through for long.
            "spanNulls": 120_000,
            "stacking": {"mode": "normal" if self.stacked or self.bars else "none", "group": "A"},
        }
        options = {**Panel.defaults(self), "custom": custom, "color": {"mode": "palette-classic"}}
        if self.bad is not None:
            custom["thresholdsStyle"] = {"mode": "line"}
            steps: list[Json] = [
                {"color": "transparent", "value": None},
                {"color": "red", "value": self.bad},
            ]
            options["thresholds"] = {"mode": "absolute", "steps": steps}
        return options if self.least is None else {**options, "min": self.least}

    def transformations(self) -> list[Json]:
        return list(self.computed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Panel):
    """A bar for each row of a table: ``label`` is the field that names it."""

    width: int = 12
    height: int = 8
    label: str

    kind: str = field(default="barchart", init=False)

    def options(self) -> Json:
        return {
            "orientation": "horizontal",
            "xField": self.label,
            "showValue": "always",
            "stacking": "none",
            "barWidth": 0.8,
            "groupWidth": 0.7,
            "fullHighlight": False,
            "xTickLabelMaxLength": 40,
            "xTickLabelRotation": 0,
            "xTickLabelSpacing": 0,
            "legend": _NO_LEGEND,
            "tooltip": {"mode": "single", "sort": "none"},
        }

    def defaults(self) -> Json:
        return {**Panel.defaults(self), "min": 0, "color": {"mode": "palette-classic"}}

    def transformations(self) -> list[Json]:
        return [without("Time")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets(Panel):
    """Bars of a histogram's buckets, from one row of them."""

    width: int = 12
    height: int = 8

    kind: str = field(default="bargauge", init=False)

    def options(self) -> Json:
        return {
            "displayMode": "basic",
            "orientation": "horizontal",
            "valueMode": "text",
            "namePlacement": "left",
            "showUnfilled": True,
            "sizing": "auto",
            "minVizHeight": 8,
            "minVizWidth": 8,
            "maxVizHeight": 300,
            "legend": _NO_LEGEND,
            "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
        }


def _target(query: Query, ref: str) -> Json:
    return {
        "refId": ref,
        "datasource": SPANS_SOURCE if query.spans else METRICS_SOURCE,
        "query": query.text,
        "rawQuery": True,
        "resultFormat": "table" if query.table else "time_series",
        "alias": query.alias,
    }
