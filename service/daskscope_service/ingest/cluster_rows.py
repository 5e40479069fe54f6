"""The rows made from a heartbeat's cluster: itself, and its use by the day."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine

from daskscope.protocol import PRICED, Cluster, Heartbeat, Prices, Status
from daskscope_service.costs import usage_sums
from daskscope_service.db.schema import cluster, usage
from daskscope_service.db.statements import Upsert
from daskscope_service.db.wire import RowMaker, to_json

_DAY = 86400

#: A cluster's row of ``usage`` is written anew once the cluster is older by this part, but at the
#: latest after so many seconds: with each beat it would be a tenth of what a beat costs.
_OLDER_BY, _LATEST = 0.1, 60.0

#: Seconds before now that a day of ``usage`` may be: sums of all later ones are made anew. No
#: spool holds a beat for longer.
_OLDEST = 400 * _DAY

#: Clusters whose row is remembered.
_REMEMBERED = 20_000

_cluster = RowMaker(cluster)

#: Where the start is in its rows.
_STARTED_AT = [column.name for column in cluster.columns].index("started_at")


def cluster_row(
    beat: Heartbeat, seq: int, workspace: str, token: str, now: float
) -> tuple[Any, ...]:
    """Return the row of ``cluster``; ``now`` is the service's clock, ``seq`` orders beats.

    ``token`` is the id of the one that it came with.
    """
    c, s = beat.cluster, beat.status
    given = {
        "workspace": workspace,
        "seq": seq,
        "first_seen_at": now,
        "last_seen_at": now,
        "thread_seconds": sum(s.worker_seconds.values()),
        "thread_idle_seconds": s.worker_seconds.get("idle", 0.0),
        "may_end": _may_end(c, s),
        "token": token,
    }
    [row] = _cluster.rows([beat], given)
    if c.started_at > now:
        # It has started before it says so. Else one whose clock is ahead would head lists, and the
        # overview, until the service's clock is there.
        row = (*row[:_STARTED_AT], now, *row[_STARTED_AT + 1 :])
    return row


def _may_end(c: Cluster, s: Status) -> bool:
    # Older plugins do not say, but all that there is to go by.
    in_client = c.kind == "LocalCluster" if c.in_client is None else c.in_client
    at_work = s.idle_seconds is None if s.at_work is None else s.at_work
    return in_client and not at_work


def _prices(prices: Prices) -> str:
    # All rows of weeks are read at once, to be added up by them: they are to be small.
    per_hour = {what: price for what, price in prices.per_hour.items() if what in PRICED}
    return to_json({"currency": prices.currency, "per_hour": per_hour})


class UsageUpsert(Upsert):
    """Writes rows of ``usage``. Sums that were made without a late one are forgotten."""

    def __init__(self, engine: Engine) -> None:
        replace = [column.name for column in usage.columns if not column.primary_key]
        super().__init__(engine, usage, replace=replace, unless_newer="seq")

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write ``rows``, as :meth:`Upsert.run`."""
        super().run(connection, rows)
        today = int(time.time() // _DAY)
        late: dict[str, int] = {}
        for workspace, day, *_ in rows:
            if day < today:
                late[workspace] = min(day, late.get(workspace, day))
        for workspace, day in late.items():
            # Of later days, too: what a cluster had before is taken off there.
            usage_sums.forget(connection, workspace, day, today)


class UsageDue:
    """Makes a cluster's row of ``usage`` when it is due. May be used from any thread.

    It is with the first beat that this process sees of the cluster on a day, with the last one, and
    in between whenever hours and costs have changed noticeably.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[str, str], tuple[int, float]] = {}

    def row(self, beat: Heartbeat, seq: int, workspace: str, now: float) -> tuple[Any, ...] | None:
        """Return the row, of the day of the beat, or of today if its clock is ahead; None: not due.

        ``now`` is the service's clock, ``seq`` orders beats.
        """
        c, s = beat.cluster, beat.status
        at = s.at if s.stopped_at is None else s.stopped_at
        day = int(max(now - _OLDEST, min(at, now)) // _DAY)
        age = max(0.0, at - c.started_at)
        last_day, last_age = self._written.get((workspace, c.id), (-1, 0.0))
        # The same: a cluster that was never older, as its clock stands still or was never set.
        recent = age == last_age or age - last_age < min(_LATEST, _OLDER_BY * last_age)
        if day == last_day and recent and s.stopped_at is None:
            return None
        return (
            workspace, day, c.id, seq, c.user, c.started_at, age,
            sum(s.worker_seconds.values()), s.worker_seconds.get("idle", 0.0), s.cost, s.idle_cost,
            None if c.prices is None else _prices(c.prices), s.gib_seconds, s.gpu_seconds,
        )  # fmt: skip

    def written(self, row: tuple[Any, ...]) -> None:
        """Remember that ``row`` is in the database."""
        workspace, day, cluster, _, _, _, age, *_ = row
        if len(self._written) >= _REMEMBERED:
            self._written.clear()  # they are written once more, that is all
        self._written[workspace, cluster] = (day, age)


class Labels:
    """Finds clusters whose kind or tags an index must store again. May be used from any thread.

    SQLite writes an index once more for each row in which something of it *may* have changed: with
    each beat, if it were left to it.
    """

    def __init__(self) -> None:
        # Hashes: tags may be many kilobytes, and what they were is of no use.
        self._written: dict[tuple[str, str], int] = {}

    def changed(self, beat: Heartbeat, workspace: str) -> bool:
        """Return whether they are others than this process has written.

        Another one may have written others since: so they are to be written now and then in any
        case.
        """
        c = beat.cluster
        return self._written.get((workspace, c.id)) != hash((c.kind, frozenset(c.tags.items())))

    def written(self, beat: Heartbeat, workspace: str) -> None:
        """Remember that those of ``beat`` are in the database."""
        if len(self._written) >= _REMEMBERED:
            self._written.clear()  # they are written once more, that is all
        c = beat.cluster
        self._written[workspace, c.id] = hash((c.kind, frozenset(c.tags.items())))
