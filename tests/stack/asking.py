"""Asks InfluxDB as Grafana does: what it makes of a query before it sends it.

As read in Grafana 13's InfluxDB data source: in the browser it puts the chosen values into the
query (``interpolateQueryExpr``), on the server the time and the step (``Query.Build``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from grafana.board import Board
from grafana.provision import SPANS_UID
from tests.stack.influxdb import DATABASE, SPANS_DATABASE

Series = list[dict[str, Any]]


class Database(Protocol):
    """What answers queries, as :meth:`tests.stack.influxdb.InfluxDB.ask` does."""

    def ask(self, query: str, database: str = DATABASE) -> Series:
        """Return the series that an InfluxQL query answers with."""


class AskedOnce:
    """A database into which nothing is written any more: a question has the answer it had before.

    Dashboards ask much of what other tests of them have asked.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._answers: dict[tuple[str, str], Series] = {}

    def ask(self, query: str, database: str = DATABASE) -> Series:
        """Return the series that an InfluxQL query answers with."""
        if (query, database) not in self._answers:
            self._answers[query, database] = self._database.ask(query, database)
        return self._answers[query, database]


#: What is chosen of a variable: some values, or all there are.
Chosen = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Shown:
    """The time that is shown, in seconds since the epoch, and the step of lines, in seconds."""

    since: float
    until: float
    step: int = 30


def expand(query: str, shown: Shown, values: Mapping[str, str]) -> str:
    """Return the query that Grafana sends. ``values`` are put in as they are."""
    if values:
        names = re.compile(rf"\$({'|'.join(values)})\b")
        query = names.sub(lambda found: values[found[1]], query)
    time = f"time >= {shown.since * 1000:.0f}ms and time <= {shown.until * 1000:.0f}ms"
    query = query.replace("$timeFilter", time)
    query = query.replace("${__to}", f"{shown.until * 1000:.0f}")
    return query.replace("$__interval", f"{shown.step}s")


def value_of(variable: Mapping[str, Any], chosen: Chosen, options: tuple[str, ...]) -> str:
    """Return what Grafana puts into a regular expression for a variable."""
    if chosen is None:
        if "allValue" in variable:
            return str(variable["allValue"])
        chosen = options
    if not variable["multi"]:
        (value,) = chosen
        return _escaped(value)
    return f"({'|'.join(_escaped(value) for value in chosen)})"


def choose(
    database: Database, board: Board, shown: Shown, **chosen: Chosen
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Ask for the options of the board's variables, one after the other, as it is opened.

    Return what stands for each in queries, and its options. Without another word all are chosen
    or, where only one may be, the first.
    """
    values: dict[str, str] = {}
    options: dict[str, tuple[str, ...]] = {}
    for variable in board.json()["templating"]["list"]:
        name = variable["name"]
        if variable["type"] == "custom":
            (values[name],) = chosen.get(name) or (variable["current"]["value"],)
        if variable["type"] != "query":
            continue
        asked = expand(variable["query"]["query"], shown, values)
        found = {row[1] for series in database.ask(asked) for row in series["values"]}
        if variable["regex"]:
            pattern = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))
            found = {match["value"] for text in found if (match := pattern.search(text))}
        options[name] = tuple(sorted(found))
        one = None if variable["includeAll"] else options[name][:1]
        values[name] = value_of(variable, chosen.get(name, one), options[name])
    return values, options


def ask_target(
    database: Database, target: Mapping[str, Any], shown: Shown, values: Mapping[str, str]
) -> Series:
    """Return the series that a panel's target is answered with."""
    spans = target["datasource"]["uid"] in ("${spans}", SPANS_UID)
    query = expand(target["query"], shown, values)
    return database.ask(query, SPANS_DATABASE if spans else DATABASE)


def rows(series: Series) -> list[dict[str, Any]]:
    """Return one dict for each row that has a value, with its tags."""
    return [
        {**one.get("tags", {}), **dict(zip(one["columns"], row, strict=True))}
        for one in series
        for row in one["values"]
        if any(value is not None for value in row[1:])
    ]


def _escaped(value: str) -> str:
    return re.sub(r"[\\^$*+?.()|\[\]{}/]", lambda found: "\\" + found[0], value)
