"""A dashboard: rows of panels, the variables that they honour, and where it leads."""

from __future__ import annotations

from dataclasses import dataclass

from daskscope import names
from grafana.config import WERE_LOST
from grafana.influxql import SCOPE, equals
from grafana.panels import METRICS_SOURCE, Panel
from grafana.transformations import Json

#: The version of the classic format: @grafana/schema names it.
SCHEMA_VERSION = 42
TAG = "daskscope"
COLUMNS = 24

#: Where the service's pages are until the reader says otherwise.
SERVICE_URL = "http://127.0.0.1:8690"

#: How old the last report of a cluster may be to count as now, and what can be chosen instead:
#: three intervals of the default of ten seconds, and of longer ones.
FRESH = ("30s", "1m", "3m", "15m")


#: Holds log records to those of chosen computations that began.
OF_STARTED = (
    f"{equals(names.EVENT_NAME, names.LOG_COMPUTATION_STARTED.name)} AND {SCOPE} "
    f'AND "{names.USER_NAME}" =~ /^$user$/ AND $timeFilter'
)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading. They go from left to right, and below where there is no room."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. ``single``: one cluster is chosen, not several. ``by_computation``: one of its
    computations may be chosen, and traces lead to what stores them.
    """

    uid: str
    title: str
    question: str
    rows: tuple[Row, ...]
    single: bool = False
    by_computation: bool = False
    since: str = "now-6h"

    def json(self) -> Json:
        """Return the dashboard as Grafana reads it, in classic JSON."""
        return {
            "uid": self.uid,
            "title": f"Dask: {self.title}",
            "description": self.question,
            "tags": [TAG],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "timezone": "browser",
            "time": {"from": self.since, "to": "now"},
            "timepicker": {},
            "annotations": {"list": _annotations() if self.single else []},
            "templating": {"list": self._variables()},
            "links": _links(single=self.single),
            "panels": self.panels(),
        }

    def _variables(self) -> list[Json]:
        chosen = variables(single=self.single)
        if self.by_computation:
            chosen.append(_computation())
            chosen += [_traces("tempo", "Tempo"), _traces("jaeger", "Jaeger")]
        return chosen

    def panels(self) -> list[Json]:
        """Return the panels in the grid, with a number each that alerts can refer to."""
        panels: list[Json] = []
        y = 0
        for row in self.rows:
            panels.append(_heading(row.title, len(panels) + 1, y))
            y += 1
            x = height = 0
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y = 0, y + height
                    height = 0
                panels.append(panel.json(len(panels) + 1, x, y))
                x += panel.width
                height = max(height, panel.height)
            y += height
        return panels

    def panel_id(self, title: str) -> int:
        """Return the number of the panel of that title. KeyError: there is none."""
        for panel in self.panels():
            if panel["title"] == title:
                return int(panel["id"])
        raise KeyError(f"{self.uid} has no panel {title!r}")


def variables(*, single: bool) -> list[Json]:
    """Return the variables: sources, workspace, user, cluster by name and id, now, the service."""
    of_workspace = f'"{names.SERVICE_NAMESPACE}" =~ /^$workspace$/'
    of_user = f'"{names.USER_NAME}" =~ /^$user$/'
    measured = f'"logs", "{names.WORKER_THREADS.name}"'
    return [
        _source("metrics", "Metrics and logs", "daskscope"),
        _source("spans", "Spans", "daskscope spans"),
        _chosen(
            "workspace",
            "Workspace",
            f'SHOW TAG VALUES FROM "{names.WORKER_THREADS.name}" '
            f'WITH KEY = "{names.SERVICE_NAMESPACE}" WHERE $timeFilter',
            all_value=".*",
        ),
        _chosen(
            "user",
            "User",
            f'SHOW TAG VALUES FROM "logs" WITH KEY = "{names.USER_NAME}" '
            f"WHERE {of_workspace} AND $timeFilter",
            all_value=".*",
        ),
        # Metrics know no user. Whoever chooses one sees the clusters that have reported that user;
        # for all users, ".*" holds for metrics too, so that no cluster needs to have logged.
        _chosen(
            "cluster_name",
            "Cluster",
            f'SHOW TAG VALUES FROM {measured} WITH KEY = "{names.CLUSTER_NAME}" '
            f"WHERE {of_workspace} AND {of_user} AND $timeFilter",
            all_value=".*",
        ),
        # Several clusters may have one name: each run of a script.
        _chosen(
            "cluster",
            "Cluster id",
            f'SHOW TAG VALUES FROM {measured} WITH KEY = "{names.CLUSTER_ID}" '
            f"WHERE {of_workspace} AND {of_user} "
            f'AND "{names.CLUSTER_NAME}" =~ /^$cluster_name$/ AND $timeFilter',
            single=single,
        ),
        {
            "type": "custom",
            "name": "fresh",
            "label": "Now",
            "description": "How old a cluster's last report may be to count as now: three times "
            "the interval at which your clusters report.",
            "query": ",".join(FRESH),
            "current": {"selected": True, "text": FRESH[0], "value": FRESH[0]},
            "options": [{"selected": one == FRESH[0], "text": one, "value": one} for one in FRESH],
            "includeAll": False,
            "multi": False,
            "hide": 0,
        },
        {
            "type": "textbox",
            "name": "service",
            "label": "daskscope service",
            "description": "Where the pages of the daskscope service are.",
            "query": SERVICE_URL,
            "current": {"selected": True, "text": SERVICE_URL, "value": SERVICE_URL},
            "options": [{"selected": True, "text": SERVICE_URL, "value": SERVICE_URL}],
            "hide": 3,
        },
    ]


def _computation() -> Json:
    of_id = names.COMPUTATION_ID.replace(".", "\\.")
    return {
        **_chosen(
            "computation",
            "Computation",
            f'SELECT "attributes" FROM "logs" WHERE {OF_STARTED} ORDER BY time DESC LIMIT 200',
            all_value=".*",
        ),
        "multi": False,
        "current": {"selected": True, "text": "All", "value": "$__all"},
        # Its id is in the attributes, which are JSON.
        "regex": f'/"{of_id}":"(?<value>[^"]+)"/',
        "sort": 0,
    }


def _traces(kind: str, title: str) -> Json:
    """Return the variable of the data source of that kind, if Grafana has one."""
    source = _source(kind, f"Traces ({title})", "")
    del source["current"]  # Grafana chooses the first one
    return {**source, "query": kind}


def _annotations() -> list[Json]:
    """Return what is marked in all lines: computations, and workers that were lost."""
    of_cluster = f"{SCOPE} AND $timeFilter"
    return [
        _annotation(
            "Computations begin",
            "blue",
            f'SELECT "body" FROM "logs" WHERE {OF_STARTED} LIMIT 200',
        ),
        _annotation(
            "Computations fail",
            "orange",
            f'SELECT "body" FROM "logs" WHERE '
            f"{equals(names.EVENT_NAME, names.LOG_COMPUTATION_FINISHED.name)} "
            f"AND {equals(names.COMPUTATION_STATUS, 'erred')} "
            f'AND "{names.USER_NAME}" =~ /^$user$/ AND {of_cluster} LIMIT 200',
        ),
        _annotation(
            "Workers are lost",
            "red",
            f'SELECT "body" FROM "logs" WHERE '
            f"{equals(names.EVENT_NAME, names.LOG_WORKER_LOST.name)} "
            f"AND {WERE_LOST} AND {of_cluster} LIMIT 200",
        ),
    ]


def _annotation(name: str, colour: str, query: str) -> Json:
    return {
        "name": name,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "datasource": METRICS_SOURCE,
        "target": {
            "refId": "Anno",
            "query": query,
            "rawQuery": True,
            "resultFormat": "table",
            "fromAnnotations": True,
            "textEditor": True,
            "textColumn": "body",
            "tagsColumn": "",
            "timeEndColumn": "",
            "titleColumn": "",
        },
    }


def _source(name: str, label: str, preferred: str) -> Json:
    return {
        "type": "datasource",
        "name": name,
        "label": label,
        "query": "influxdb",
        "regex": "",
        "current": {"selected": True, "text": preferred, "value": preferred.replace(" ", "-")},
        "options": [],
        "refresh": 1,
        "includeAll": False,
        "multi": False,
        "hide": 3,
    }


def _chosen(
    name: str, label: str, query: str, *, all_value: str = "", single: bool = False
) -> Json:
    variable: Json = {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": METRICS_SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "regex": "",
        "sort": 5,
        "options": [],
        "includeAll": not single,
        "multi": not single,
        "hide": 0,
    }
    if not single:
        variable["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return {**variable, "allValue": all_value} if all_value else variable


def _heading(title: str, id: int, y: int) -> Json:
    return {
        "id": id,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        "panels": [],
    }


def _links(*, single: bool) -> list[Json]:
    page = "/clusters/${cluster:percentencode}" if single else "/"
    return [
        {
            "type": "dashboards",
            "title": "Dask",
            "tags": [TAG],
            "asDropdown": False,
            "icon": "external link",
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
            "tooltip": "",
            "url": "",
        },
        {
            "type": "link",
            "title": "This cluster's page" if single else "daskscope",
            "tags": [],
            "asDropdown": False,
            "icon": "external link",
            "includeVars": False,
            "keepTime": False,
            "targetBlank": True,
            "tooltip": "The pages of the daskscope service: tracebacks, code, profiles, graphs.",
            "url": f"${{service}}{page}",
        },
    ]
