"""Log records out of InfluxDB, with what the service itself knows of their clusters."""

from __future__ import annotations

from dataclasses import asdict

from daskscope_service.db.schema import cluster
from daskscope_service.db.scope import Page, Scope, Selection
from daskscope_service.queries.logs import LogReader, level_of
from daskscope_service.telemetry.influx_logs import InfluxLogs


def from_influxdb(store: InfluxLogs) -> LogReader:
    """Return what reads pages of log records out of ``store``. It raises Unavailable."""

    def read(scope: Scope, selection: Selection) -> Page:
        records, end = store.newest(
            scope.workspace,
            selection.cluster,
            selection.kept_since,
            selection.kept_until,
            None if selection.after is None else selection.after[:2],
            selection.limit,
        )
        ids = {record.cluster for record in records}
        whose = scope.select(cluster, cluster.c.id, cluster.c.name, cluster.c.user).where(
            cluster.c.id.in_(ids)
        )
        known = {item["id"]: item for item in scope.items(whose)}
        items = [
            asdict(record)
            | {
                "level": level_of(record.severity),
                "cluster_name": known.get(record.cluster, {}).get("name"),
                "user": known.get(record.cluster, {}).get("user"),
            }
            for record in records
        ]
        return Page(items, None if end is None else (*end, ""))

    return read
