"""Whose telemetry is whose, where all workspaces write into one database.

There a point, a span and a log record name a workspace: the setting ``daskscope.workspace`` of the
cluster. A cluster that has none is ``default`` there, whatever its token's workspace: whose it is
then, heartbeats say, which came with a token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sqlalchemy import Engine

from daskscope_service.db.rows import only_in
from daskscope_service.db.schema import cluster

#: What a cluster without the setting calls its workspace.
UNNAMED = "default"

#: Which of these ids are those of clusters of a workspace, and of no other.
Own = Callable[[str, Collection[str]], frozenset[str]]


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
