"""Alert rules, for Grafana to evaluate each minute: one state for each cluster.

A rule asks some queries, takes the last value of each, and fires where an expression over them
holds. Grafana joins values by their labels, the cluster's; a cluster that one of the queries knows
nothing of takes no part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from grafana.board import Board
from grafana.provision import FOLDER, METRICS_UID

RUNBOOKS = "docs/runbooks.md"


@dataclass(frozen=True, slots=True)
class Value:
    """The last value that ``query`` gives of each cluster, from ``since`` to ``until`` seconds ago.

    In the rule's condition it is ``$name``.
    """

    name: str
    query: str
    since: int
    until: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert: fires for each cluster for which ``condition`` has held for ``minutes``.

    ``panel`` is the title of the panel of ``board`` that shows what it is about.
    """

    uid: str
    title: str
    summary: str
    severity: str
    values: tuple[Value, ...]
    condition: str
    minutes: int
    board: Board
    panel: str

    @property
    def runbook(self) -> str:
        """Return where the rule's runbook is."""
        return f"{RUNBOOKS}#{self.uid}"

    def provisioned(self) -> dict[str, Any]:
        """Return the rule as Grafana's file provisioning takes it."""
        data: list[dict[str, Any]] = []
        for value in self.values:
            data += [_query(value), _last(value)]
        data.append(_expression("firing", type="math", expression=self.condition))
        return {
            "uid": f"daskscope-{self.uid}",
            "title": self.title,
            "condition": "firing",
            "for": f"{self.minutes}m",
            # A cluster without data is not in trouble: the alert cluster-silent covers it.
            "noDataState": "OK",
            "execErrState": "Error",
            "dashboardUid": self.board.uid,
            "panelId": self.board.panel_id(self.panel),
            "labels": {"severity": self.severity, "product": "daskscope"},
            "annotations": {"summary": self.summary, "runbook": self.runbook},
            "data": data,
        }


def provisioned(rules: Iterable[Rule]) -> dict[str, Any]:
    """Return ``rules`` as Grafana's file provisioning takes them."""
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": "daskscope",
                "folder": FOLDER,
                "interval": "1m",
                "rules": [rule.provisioned() for rule in rules],
            }
        ],
    }


def _query(value: Value) -> dict[str, Any]:
    return {
        "refId": f"{value.name}_series",
        "datasourceUid": METRICS_UID,
        "relativeTimeRange": {"from": value.since, "to": value.until},
        "model": {
            "refId": f"{value.name}_series",
            "datasource": {"type": "influxdb", "uid": METRICS_UID},
            "query": value.query,
            "rawQuery": True,
            "resultFormat": "time_series",
            "intervalMs": 60_000,
            "maxDataPoints": 1_000,
        },
    }


def _last(value: Value) -> dict[str, Any]:
    return _expression(
        value.name,
        type="reduce",
        expression=f"{value.name}_series",
        reducer="last",
        settings={"mode": "dropNN"},
    )


def _expression(ref: str, **model: Any) -> dict[str, Any]:
    return {
        "refId": ref,
        "datasourceUid": "__expr__",
        "model": {"refId": ref, "datasource": {"type": "__expr__", "uid": "__expr__"}, **model},
    }
