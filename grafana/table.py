"""Tables as panels: their columns, and what Grafana's classic JSON makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from grafana.panels import Link, Panel
from grafana.transformations import MERGED, Json, chosen, extracted


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the field ``source``, shown as ``title``.

    ``words`` stand for a number above 0, and for 0 or none.
    """

    source: str
    title: str
    unit: str = ""
    links: tuple[Link, ...] = ()
    width: int = 0
    decimals: int | None = None
    words: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Panel):
    """A table of ``columns``, in their order.

    The rows of several queries are one where they speak of the same. ``extract``: the rows are log
    records or spans, and the columns lie in their attributes. ``computed`` comes before the
    columns are chosen. The first row is the highest of the column ``sort``.
    """

    width: int = 24
    height: int = 10
    columns: tuple[Column, ...]
    extract: bool = False
    computed: tuple[Json, ...] = ()
    sort: str = ""

    kind: str = field(default="table", init=False)

    def options(self) -> Json:
        sort = [{"displayName": self.sort, "desc": True}] if self.sort else []
        return {"showHeader": True, "cellHeight": "sm", "sortBy": sort}

    def overrides(self) -> list[Json]:
        return [
            {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
            for column in self.columns
            if (properties := _properties(column))
        ]

    def transformations(self) -> list[Json]:
        steps: list[Json] = [MERGED] if len(self.queries) > 1 else []
        if self.extract:
            steps.append(extracted("attributes"))
        titles = {column.source: column.title for column in self.columns}
        return [*steps, *self.computed, *chosen(titles)]


def _properties(column: Column) -> list[Json]:
    properties: list[Json] = []
    if column.unit:
        properties.append({"id": "unit", "value": column.unit})
    if column.decimals is not None:
        properties.append({"id": "decimals", "value": column.decimals})
    if column.links:
        properties.append({"id": "links", "value": [link.json() for link in column.links]})
    if column.words is not None:
        there, missing = column.words
        positive = {"from": 1e-9, "to": None, "result": {"text": there, "index": 0}}
        nothing = {"match": "null", "result": {"text": missing, "index": 2}}
        mappings = [
            {"type": "range", "options": positive},
            {"type": "value", "options": {"0": {"text": missing, "index": 1}}},
            {"type": "special", "options": nothing},
        ]
        properties.append({"id": "mappings", "value": mappings})
    if column.width:
        properties.append({"id": "custom.width", "value": column.width})
    return properties
