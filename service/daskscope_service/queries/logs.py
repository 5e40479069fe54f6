"""Log records from the service's own table, or from InfluxDB with names and users added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from sqlalchemy import and_

from daskscope import names
from daskscope_service.db.schema import cluster, log_record
from daskscope_service.db.scope import Item, Page, Position, Scope, Selection, page
from daskscope_service.queries.scan_filter import Scanned, scan
from daskscope_service.telemetry.influx_logs import InfluxLogs

#: The lowest OpenTelemetry severity number of each level; the lowest level first.
LEVELS = {"trace": 1, "debug": 5, "info": 9, "warning": 13, "error": 17, "fatal": 21}


#: Reads a page by cluster and time, for all users. A page may have a next one even if it has fewer
#: items than were asked for. Raises Unavailable if the store of the records does not answer.
LogReader = Callable[[Scope, Selection], Page[Item]]


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which records: of this level or a higher one, that contain this text, ignoring case.

    ``computation`` is the id of the computation that they belong to.
    """

    level: str | None = None
    text: str | None = None
    computation: str | None = None


def list_logs(
    scope: Scope,
    selection: Selection,
    which: LogFilter,
    read: LogReader,
    most: int | None = None,
) -> Scanned:
    """Return log records by time. Their ``user`` is the cluster's, None if it is not known.

    With a level, a text, a computation or a user, only the next ``most`` records (default:
    :data:`~daskscope_service.queries.scan_filter.MOST_SCANNED`) are searched, because the text is
    encrypted. Raises what ``read`` raises.
    """
    anyone = replace(selection, user=None)
    if which == LogFilter() and selection.user is None:
        listed = read(scope, anyone)
        short = len(listed.items) < selection.limit
        return Scanned(listed.items, listed.next, listed.next[0] if listed.next and short else None)
    least = LEVELS[which.level] if which.level else 0
    text = (which.text or "").lower()

    def fits(item: Item) -> bool:
        return (
            item["severity"] >= least
            and selection.user in (None, item["user"])
            and which.computation in (None, (item["attributes"] or {}).get(names.COMPUTATION_ID))
            and (not text or text in (item["body"] or "").lower())
        )

    return scan(scope, read, anyone, fits, _position, most)


def level_of(severity: int) -> str:
    """Return the level of a severity number, "" for 0: none was given."""
    return next((level for level, least in reversed(LEVELS.items()) if severity >= least), "")


def own_logs(scope: Scope, selection: Selection) -> Page[Item]:
    """Return a page of log records from the service's own table: a :data:`LogReader`."""
    query = scope.select(
        log_record, log_record, cluster.c.name.label("cluster_name"), cluster.c.user
    ).outerjoin(
        cluster,
        and_(cluster.c.workspace == log_record.c.workspace, cluster.c.id == log_record.c.cluster),
    )
    query = query.where(scope.is_of(selection.cluster, log_record.c.cluster))
    listed = page(scope, query, selection, log_record.c.at, "id")
    return Page([row | {"level": level_of(row["severity"])} for row in listed.items], listed.next)


def _position(item: Item) -> Position:
    return item["at"], item["id"], ""


def from_influxdb(store: InfluxLogs) -> LogReader:
    """Return a reader of the log records in ``store``; it raises Unavailable without an answer."""

    def read(scope: Scope, selection: Selection) -> Page[Item]:
        records, end = store.newest(
            scope.workspace,
            None if selection.cluster is None else scope.called(selection.cluster),
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
