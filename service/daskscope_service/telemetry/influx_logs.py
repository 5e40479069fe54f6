"""Log records from the InfluxDB that a collector writes to.

All log records share one measurement. Attributes used for filtering are tags, the others are JSON;
resource attributes are excluded.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from daskscope import names
from daskscope_service.telemetry.influx_rows import (
    OF_SENDER,
    UNNAMED,
    InfluxDatabase,
    attributes_of,
)
from daskscope_service.telemetry.influxql import any_of

#: Columns that are no attributes.
_BESIDE = OF_SENDER | {
    *("time", "observed_time_unix_nano", "body", "severity_number", "severity_text"),
    *("attributes", "dropped_attributes_count", "trace_id", "span_id"),
}

_LOGS = 'FROM "logs"'

#: Seconds back from now, tried one after the other to find the newest records: each shard that a
#: query opens takes time, and the first range mostly has enough records.
_LOOK_BACK = (3600, 86_400, 7 * 86_400)

_ID = re.compile("([0-9]{1,19})-([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Record:
    """A log record. ``at`` is in seconds since the Unix epoch; ``id`` rises with it.

    The collector moves a record by less than a millisecond, so that it does not overwrite another.
    """

    id: str
    cluster: str
    at: float
    severity: int
    event_name: str
    body: str
    attributes: dict[str, Any]
    trace_id: str | None
    span_id: str | None


class InfluxLogs:
    """Log records of an InfluxDB."""

    def __init__(self, database: InfluxDatabase) -> None:
        self._database = database

    def newest(
        self,
        workspace: str,
        clusters: Collection[str] | None,
        since: float | None,
        until: float | None,
        after: tuple[float, str] | None,
        most: int,
    ) -> tuple[list[Record], tuple[float, str] | None]:
        """Return records of a workspace, newest first, and the position after which it goes on.

        ``clusters``: only records of these; None: of the whole workspace. Times are in seconds
        since the Unix epoch. ``after`` is the time and the id of the last record that the reader
        has. If others write into the same database, there may be fewer than ``most`` records
        although the list goes on.

        Raises
        ------
        Unavailable
            InfluxDB does not answer.
        """
        named: Collection[str] = {workspace, UNNAMED}
        if clusters is not None:
            named = self._database.names_of(workspace, clusters)
        if not named:
            return [], None
        who = any_of(names.SERVICE_NAMESPACE, named)
        if clusters is not None:
            who += f" AND {any_of(names.CLUSTER_ID, clusters)}"
        begin = None if since is None else _ns(since)
        # The clock of a record may be ahead.
        end = _ns(time.time() + 86_400 if until is None else until)
        rows: list[dict[str, Any]] = []
        if after is not None:
            last, digest = _place(*after)
            rows = [row for row in self._at(who, last) if _digest(row) < digest]
            end = min(end, last)
        rows += self._before(who, begin, end, most + 1 - len(rows))
        rows.sort(key=lambda row: (row["time"], _digest(row)), reverse=True)
        shown = rows[:most]
        records = [_record(row) for row in self._database.readable(workspace, shown)]
        if len(rows) <= most:
            return records, None
        return records, (shown[-1]["time"] / 1e9, _id(shown[-1]))

    def _before(self, who: str, begin: int | None, end: int, most: int) -> list[dict[str, Any]]:
        """Return the last ``most`` rows before ``end``, and all with the time of the last one."""
        rows: list[dict[str, Any]] = []
        if most <= 0:
            return rows
        newest = min(end, time.time_ns())
        for first in (*(newest - seconds * 10**9 for seconds in _LOOK_BACK), begin):
            from_ = first if begin is None or first is None else max(first, begin)
            since = "" if from_ is None else f" AND time >= {from_}"
            rows = self._rows(f"{who}{since} AND time < {end} ORDER BY time DESC LIMIT {most}")
            if len(rows) == most or from_ == begin:
                break
        if len(rows) < most:
            return rows
        last = rows[-1]["time"]
        return [row for row in rows if row["time"] != last] + self._at(who, last)

    def _at(self, who: str, moment: int) -> list[dict[str, Any]]:
        return self._rows(f"{who} AND time = {moment}")

    def _rows(self, where: str) -> list[dict[str, Any]]:
        return self._database.rows(f"SELECT * {_LOGS} WHERE {where}")


def _record(row: Mapping[str, Any]) -> Record:
    attributes = attributes_of(row, _BESIDE)
    # An older configuration of the collector stored them as tags.
    trace_id, span_id = (attributes.pop(id, None) or row.get(id) for id in ("trace_id", "span_id"))
    return Record(
        id=_id(row),
        cluster=row.get(names.CLUSTER_ID, ""),
        at=row["time"] / 1e9,
        severity=row.get("severity_number", 0),
        event_name=str(attributes.get(names.EVENT_NAME, "")),
        # The collector's exporter writes a line end as a backslash and an n.
        body=row.get("body", "").replace("\\n", "\n"),
        attributes=attributes,
        trace_id=trace_id,
        span_id=span_id,
    )


def _id(row: Mapping[str, Any]) -> str:
    return f"{row['time']}-{_digest(row)}"


def _digest(row: Mapping[str, Any]) -> str:
    content = json.dumps(row, sort_keys=True).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _place(at: float, id: str) -> tuple[int, str]:
    """Return the nanosecond and the digest in a record's id; if it is no such id, only the time."""
    match = _ID.fullmatch(id)
    return (int(match[1]), match[2]) if match else (_ns(at), "")


def _ns(seconds: float) -> int:
    """Return the first nanosecond that is shown as ``seconds``, or later.

    Today's times are 238 ns apart as floats, and the service's own table compares floats.
    """
    near = round(seconds * 1e9)
    around = range(near - 1024, near + 1024)
    first = around[bisect.bisect_left(around, seconds, key=lambda ns: ns / 1e9)]
    return max(min(first, 2**63 - 2), -(2**63) + 2)
