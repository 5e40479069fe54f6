"""What Grafana makes of rows before it shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

#: Makes one row of the rows that share the time and the tags.
MERGED: Json = {"id": "merge", "options": {}}


def extracted(field: str) -> Json:
    """Return the transformation that makes fields of what is in a field of JSON."""
    return {
        "id": "extractFields",
        "options": {"source": field, "format": "json", "replace": False},
    }


def chosen(titles: Mapping[str, str]) -> list[Json]:
    """Return what leaves only the fields of ``titles``, in their order and by these titles."""
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(titles)}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {field: index for index, field in enumerate(titles)},
                "renameByName": dict(titles),
            },
        },
    ]


def quotient(left: str, right: str, title: str) -> Json:
    """Return the transformation that adds the field ``title``: ``left`` by ``right``."""
    binary = {
        "left": {"matcher": {"id": "byName", "options": left}},
        "operator": "/",
        "right": {"matcher": {"id": "byName", "options": right}},
    }
    return {
        "id": "calculateField",
        "options": {"mode": "binary", "alias": title, "binary": binary, "replaceFields": False},
    }


def without(*fields: str) -> Json:
    """Return the transformation that leaves ``fields`` out."""
    excluded: Mapping[str, bool] = dict.fromkeys(fields, True)
    options = {"excludeByName": excluded, "indexByName": {}, "renameByName": {}}
    return {"id": "organize", "options": options}
