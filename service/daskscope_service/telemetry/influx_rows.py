"""What rows of metrics, spans and log records have in common where the collector wrote them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from daskscope import names

#: Tags that name who sent something: the same for all of a cluster.
OF_SENDER = frozenset((*names.RESOURCE_ATTRIBUTES, "otel.library.name", "otel.library.version"))


def attributes_of(row: Mapping[str, Any], beside: Collection[str]) -> dict[str, Any]:
    """Return the attributes of a span or a log record: those in JSON, and those that are tags.

    ``beside`` are columns that are none.
    """
    attributes = json.loads(row.get("attributes", "{}"))
    own = {key: value for key, value in attributes.items() if key not in OF_SENDER}
    return own | {key: value for key, value in row.items() if key not in beside}


def sender(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what sent a span or a log record: what it calls its workspace, and the cluster."""
    return row[names.SERVICE_NAMESPACE], row.get(names.CLUSTER_ID, "")
