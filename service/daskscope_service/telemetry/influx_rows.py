"""Rows that the collector wrote into InfluxDB: whose they are, and what they have in common.

All workspaces write into one database. There a point, a span and a log record name a workspace: the
setting ``daskscope.workspace`` of the cluster. A cluster without the setting is ``default`` there,
whatever its token's workspace; its heartbeats, which came with a token, say where it belongs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlalchemy import Engine

from daskscope import names
from daskscope_service.db.rows import only_in
from daskscope_service.db.schema import cluster

#: Tags that name who sent something: the same for all of a cluster.
OF_SENDER = frozenset((*names.RESOURCE_ATTRIBUTES, "otel.library.name", "otel.library.version"))

#: What a cluster without the setting calls its workspace.
UNNAMED = "default"

#: Which of these ids are those of clusters of a workspace, and of no other.
Own = Callable[[str, Collection[str]], frozenset[str]]


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


def own_clusters(engine: Engine) -> Own:
    """Return what asks the service's own tables."""

    def own(workspace: str, ids: Collection[str]) -> frozenset[str]:
        with engine.connect() as connection:
            return frozenset(connection.execute(only_in(workspace, cluster, ids)).scalars())

    return own


def said_by(own: Own, workspace: str, cluster_id: str) -> frozenset[str]:
    """Return what a cluster may call its workspace for this one to read it; nothing: it may not."""
    named = {workspace} - {UNNAMED}
    return frozenset(named | {UNNAMED} if own(workspace, [cluster_id]) else named)


def may_read(own: Own, workspace: str, named: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return which of these a workspace may read: pairs of what it is called, and the cluster."""
    unnamed = own(workspace, {cluster_id for said, cluster_id in named if said == UNNAMED})
    return {
        (said, cluster_id)
        for said, cluster_id in named
        if (cluster_id in unnamed if said == UNNAMED else said == workspace)
    }
