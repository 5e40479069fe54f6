"""The rows made from a heartbeat's cluster: itself, and its usage by the day."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Engine

from daskscope.protocol import PRICED, Cluster, Heartbeat, Prices, Status
from daskscope_service.costs import usage_sums
from daskscope_service.costs.price_list import PriceList
from daskscope_service.db.schema import cluster, usage
from daskscope_service.db.statements import Upsert
from daskscope_service.db.wire import RowMaker, to_json

_DAY = 86400

#: A cluster's row of ``usage`` is written again once the cluster's age has grown by this share, but
#: at the latest after so many seconds. Writing it with each heartbeat would be a tenth of a
#: heartbeat's cost.
_OLDER_BY, _LATEST = 0.1, 60.0

#: How many seconds ago a day of ``usage`` may be, because sums of all later days are computed
#: again. No spool holds a heartbeat for longer.
_OLDEST = 400 * _DAY

#: The columns of a cost by what the operator knows of prices.
OPERATOR_COST = ("operator_cost", "operator_currency", "operator_source")

#: How many clusters are cached.
_REMEMBERED = 20_000

_cluster = RowMaker(cluster)

#: The place of the start in these rows.
_STARTED_AT = [column.name for column in cluster.columns].index("started_at")


def operator_cost(beat: Heartbeat, prices: PriceList | None) -> dict[str, Any]:
    """Return the columns of a cluster's cost by the operator's price list; None: there is none."""
    cost = None
    if prices is not None and beat.cluster.prices is None:
        cost = prices.cost(beat.status.instances, sum(beat.status.worker_seconds.values()))
    if prices is None or cost is None:
        return dict.fromkeys(OPERATOR_COST)
    return dict(zip(OPERATOR_COST, (cost, prices.currency, "instances"), strict=True))


def cluster_row(
    beat: Heartbeat,
    seq: int,
    workspace: str,
    token: str,
    now: float,
    prices: PriceList | None = None,
) -> tuple[Any, ...]:
    """Return the row of ``cluster``; ``now`` is the service's clock, ``seq`` orders heartbeats.

    ``token`` is the id of the token that the heartbeat came with.
    """
    c, s = beat.cluster, beat.status
    given = operator_cost(beat, prices) | {
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
        # A cluster has started before it reports. Otherwise one whose clock is ahead would be first
        # in lists and in the overview until the service's clock has caught up.
        row = (*row[:_STARTED_AT], now, *row[_STARTED_AT + 1 :])
    return row


def _may_end(c: Cluster, s: Status) -> bool:
    # Older plugins do not report this; these fields are the best guess.
    in_client = c.kind == "LocalCluster" if c.in_client is None else c.in_client
    at_work = s.idle_seconds is None if s.at_work is None else s.at_work
    return in_client and not at_work


def prices_of_usage(prices: Prices | None) -> str | None:
    """Return the text in a row of ``usage`` for the prices of a cluster."""
    if prices is None:
        return None
    # Pages read all rows of weeks at once, grouped by this text, so it should be short.
    per_hour = {what: price for what, price in prices.per_hour.items() if what in PRICED}
    return to_json({"currency": prices.currency, "per_hour": per_hour})


def day_of_usage(at: float, heard_at: float) -> int:
    """Return the day of ``usage`` for a report of the time ``at``, by the cluster's clock.

    It is the day on which the report came, at ``heard_at``, if the cluster's clock is ahead.
    """
    return int(max(heard_at - _OLDEST, min(at, heard_at)) // _DAY)


class UsageUpsert(Upsert):
    """Writes rows of ``usage``, and removes stored sums that were computed without a late one."""

    def __init__(self, engine: Engine, keep: Sequence[str] = ()) -> None:
        replaced = [
            column.name
            for column in usage.columns
            if not column.primary_key and column.name not in keep
        ]
        super().__init__(engine, usage, replace=replaced, unless_newer="seq")
        self._place = itemgetter(*map(self.columns.index, ("workspace", "day")))

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write ``rows``, as :meth:`Upsert.run`."""
        super().run(connection, rows)
        today = int(time.time() // _DAY)
        late: dict[str, int] = {}
        for workspace, day in map(self._place, rows):
            if day < today:
                late[workspace] = min(day, late.get(workspace, day))
        for workspace, day in late.items():
            # Those of later days, too: the cluster's earlier totals are subtracted there.
            usage_sums.forget(connection, workspace, day, today)


class UsageDue:
    """Makes a cluster's row of ``usage`` when it is due. May be used from any thread.

    It is due with the first heartbeat of a day that this process gets from the cluster, with the
    one that reports its end, and in between whenever usage and costs have changed noticeably. Of a
    cluster that falls silent, :mod:`.last_usage` makes the last row.
    """

    def __init__(self, prices: PriceList | None = None) -> None:
        self._prices = prices
        self._written: dict[tuple[str, str], tuple[int, float]] = {}

    def row(self, beat: Heartbeat, seq: int, workspace: str, now: float) -> dict[str, Any] | None:
        """Return the row for the day of the heartbeat, by column; None if it is not due.

        The day is today if the cluster's clock is ahead. ``now`` is the service's clock, ``seq``
        orders heartbeats.
        """
        c, s = beat.cluster, beat.status
        at = s.at if s.stopped_at is None else s.stopped_at
        day = day_of_usage(at, now)
        age = max(0.0, at - c.started_at)
        last_day, last_age = self._written.get((workspace, c.id), (-1, 0.0))
        # Equal for a cluster whose age never grew: its clock stands still or was never set.
        recent = age == last_age or age - last_age < min(_LATEST, _OLDER_BY * last_age)
        if day == last_day and recent and s.stopped_at is None:
            return None
        return operator_cost(beat, self._prices) | {
            "workspace": workspace,
            "day": day,
            "cluster": c.id,
            "seq": seq,
            "user": c.user,
            "started_at": c.started_at,
            "up_seconds": age,
            "thread_seconds": sum(s.worker_seconds.values()),
            "idle_seconds": s.worker_seconds.get("idle", 0.0),
            "cost": s.cost,
            "idle_cost": s.idle_cost,
            "prices": prices_of_usage(c.prices),
            "gib_seconds": s.gib_seconds,
            "gpu_seconds": s.gpu_seconds,
        }

    def written(self, row: Mapping[str, Any]) -> None:
        """Remember that ``row`` is in the database."""
        if len(self._written) >= _REMEMBERED:
            self._written.clear()  # this only means writing them once more
        self._written[row["workspace"], row["cluster"]] = (row["day"], row["up_seconds"])


class Labels:
    """Finds clusters whose kind or tags an index must store again. May be used from any thread.

    Left to itself, SQLite writes an index again for each row in which its columns *may* have
    changed: with each heartbeat.
    """

    def __init__(self) -> None:
        # Hashes: tags may have many kilobytes, and only changes matter.
        self._written: dict[tuple[str, str], int] = {}

    def changed(self, beat: Heartbeat, workspace: str) -> bool:
        """Return whether kind and tags differ from those that this process has last written.

        Another process may have written others since, so the caller must also write them now and
        then.
        """
        c = beat.cluster
        return self._written.get((workspace, c.id)) != hash((c.kind, frozenset(c.tags.items())))

    def written(self, beat: Heartbeat, workspace: str) -> None:
        """Remember that the kind and the tags of ``beat`` are in the database."""
        if len(self._written) >= _REMEMBERED:
            self._written.clear()  # they are written once more, that is all
        c = beat.cluster
        self._written[workspace, c.id] = hash((c.kind, frozenset(c.tags.items())))
