"""Evaluates provisioned alert rules as Grafana does: queries, last values, an expression."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from daskscope import names
from grafana.alerts import Rule
from tests.stack.asking import Shown, expand
from tests.stack.influxdb import InfluxDB

#: Values by the labels of their series.
Values = dict[tuple[tuple[str, str], ...], float]

MINUTE = 60.0


def firing(rule: Rule, database: InfluxDB, now: float) -> set[str]:
    """Return the ids of the clusters for which the rule holds, and has held for as long as it asks.

    Grafana evaluates once a minute.
    """
    written = rule.provisioned()
    minutes = int(written["for"].removesuffix("m"))
    held = [_holds(written, database, now - ago * MINUTE) for ago in range(minutes + 1)]
    return set.intersection(*held)


def _holds(rule: Mapping[str, Any], database: InfluxDB, at: float) -> set[str]:
    found: dict[str, Values] = {}
    for part in rule["data"]:
        model = part["model"]
        if part["datasourceUid"] != "__expr__":
            times = part["relativeTimeRange"]
            shown = Shown(at - times["from"], at - times["to"])
            found[part["refId"]] = _last(database.ask(expand(model["query"], shown, {})))
        elif model["type"] == "reduce":
            assert (model["reducer"], model["settings"]) == ("last", {"mode": "dropNN"})
            found[part["refId"]] = found[model["expression"]]
        else:
            assert model["type"] == "math"
            found[part["refId"]] = _computed(model["expression"], found)
    return {
        dict(labels)[names.CLUSTER_ID]
        for labels, value in found[rule["condition"]].items()
        if value
    }


def _last(series: list[dict[str, Any]]) -> Values:
    values: Values = {}
    for one in series:
        numbers = [row[1] for row in one["values"] if row[1] is not None]
        if numbers:
            values[tuple(sorted(one["tags"].items()))] = numbers[-1]
    return values


def _computed(expression: str, known: Mapping[str, Values]) -> Values:
    """Join the values by their labels; what one of them lacks takes no part."""
    used = re.findall(r"\$(\w+)", expression)
    python = re.sub(r"\$(\w+)", r"\1", expression).replace("&&", "and").replace("||", "or")
    shared = set.intersection(*(set(known[name]) for name in used))
    return {
        labels: float(eval(python, {}, {name: known[name][labels] for name in used}))
        for labels in shared
    }
