"""Rows that the collector wrote into InfluxDB: their workspace and their attributes.

All workspaces write into one database. A point, a span or a log record there names a workspace: the
setting ``daskscope.workspace`` of its cluster. A cluster without the setting is ``default`` there,
whatever its token's workspace. Its heartbeats, which came with a token, show where it belongs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from daskscope import names
from daskscope_service.db.rows import only_in
from daskscope_service.db.schema import cluster as table
from daskscope_service.telemetry.influxql import InfluxQL

#: Tags that identify the sender: they are the same in all data of a cluster.
OF_SENDER = frozenset(
    (
        *names.RESOURCE_ATTRIBUTES,
        *names.SDK_ATTRIBUTES,
        "otel.library.name",
        "otel.library.version",
    )
)

#: The workspace in the data of clusters without the setting.
UNNAMED = "default"

#: Returns which of these ids are clusters of the workspace, and of no other workspace.
Own = Callable[[str, Collection[str]], frozenset[str]]


def attributes_of(row: Mapping[str, Any], beside: Collection[str]) -> dict[str, Any]:
    """Return the attributes of a span or a log record: those in JSON, and those that are tags.

    ``beside`` are the columns that are no attributes.
    """
    attributes = json.loads(row.get("attributes", "{}"))
    own = {key: value for key, value in attributes.items() if key not in OF_SENDER}
    return own | {key: value for key, value in row.items() if key not in beside}


def own_clusters(engine: Engine) -> Own:
    """Return a function that looks clusters up in the service's own tables."""

    def own(workspace: str, ids: Collection[str]) -> frozenset[str]:
        with engine.connect() as connection:
            return frozenset(connection.execute(only_in(workspace, table, ids)).scalars())

    return own


@dataclass(frozen=True, slots=True)
class InfluxDatabase:
    """A database of an InfluxDB (in InfluxDB 2, a bucket). ``own`` finds a workspace's clusters."""

    influxdb: InfluxQL
    name: str
    own: Own

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement: see :meth:`.InfluxQL.rows`."""
        return self.influxdb.rows(self.name, statement)

    def names_of(self, workspace: str, clusters: Collection[str]) -> frozenset[str]:
        """Return the names under which ``workspace`` may read data of ``clusters``, perhaps none.

        If some of the clusters are not its own, :meth:`readable` leaves out their rows.
        """
        named = {workspace} - {UNNAMED}
        is_own = self.own(workspace, clusters)
        return frozenset(named | {UNNAMED} if is_own else named)

    def readable(
        self, workspace: str, rows: Collection[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Return the rows of spans or log records that ``workspace`` may read."""
        senders = [(row[names.SERVICE_NAMESPACE], row.get(names.CLUSTER_ID, "")) for row in rows]
        unnamed = self.own(workspace, {cluster for name, cluster in senders if name == UNNAMED})
        for row, (name, cluster) in zip(rows, senders, strict=True):
            if cluster in unnamed if name == UNNAMED else name == workspace:
                yield row
