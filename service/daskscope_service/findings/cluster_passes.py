"""Makes the findings of clusters, in passes over all clusters of a workspace.

A pass may take several rounds: in each round, every workspace gets only some seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from sqlalchemy import Connection, Engine, or_

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, finding
from daskscope_service.db.scope import Item, Scope
from daskscope_service.findings.stored_findings import as_rows, store_findings
from daskscope_service.insight.findings.rules import judge
from daskscope_service.insight.verdict import MISSED_BEATS
from daskscope_service.periodic import together_or_alone
from daskscope_service.queries import evidence
from daskscope_service.telemetry.store import SeriesStore

logger = logging.getLogger(__name__)

#: Clusters that are judged and stored together.
_TOGETHER = 20
#: Seconds, about, for the clusters of one workspace in a round: other workspaces have a turn, too.
#: And how many clusters are read for it: there may be a million.
_SECONDS, _MOST_READ = 10.0, 10_000
#: Seconds after which findings of a running cluster are stored again though only their numbers
#: changed, and after which a silent cluster is judged again.
_RENEWED = 600.0
#: Seconds by which a scheduler's clock may be behind the service's.
_CLOCKS = 600.0
#: Clusters that have been silent for more seconds than this are not judged again.
_GONE = 86_400.0


@dataclass(slots=True)
class _Pass:
    """A pass that has not ended.

    It judges running clusters and those that stopped or fell silent after ``since``, and, if
    ``with_silent``, those that were silent before. ``reached`` is the id of the last one judged.
    """

    began: float
    since: float
    with_silent: bool
    reached: str = ""


class ClusterPasses:
    """Judges the clusters of each workspace, a part of a pass in each round.

    ``go_on`` is called after some clusters were judged, with the seconds that this took; ``report``
    with the new findings of a workspace, once they are stored.
    """

    def __init__(
        self,
        engine: Engine,
        store: SeriesStore,
        silent_after: float,
        go_on: Callable[[float], None],
        report: Callable[[str, list[Item]], None] = lambda workspace, findings: None,
    ) -> None:
        self._engine = engine
        self._store = store
        self._silent_after = silent_after
        self._go_on = go_on
        self._report = report
        # By workspace: the pass that has not ended, when the last pass that has ended began, and
        # when the last one with silent clusters began.
        self._passes: dict[str, _Pass] = {}
        self._ended: dict[str, float] = {}
        self._with_silent: dict[str, float] = {}

    def begin_anew(self, name: str) -> None:
        """Start a new pass over all clusters of a workspace, even those that stopped long ago."""
        self._passes[name] = _Pass(0.0, 0.0, with_silent=True)

    def round(self, name: str, now: float, before: float) -> tuple[int, bool]:
        """Judge clusters of a workspace for some seconds; go on with a pass that has not ended.

        These are the clusters that are up, and those that stopped since the last pass began, or
        since ``before`` if this process has ended no pass. Return how many were judged, and whether
        the pass has ended.
        """
        going = self._passes.get(name)
        if going is None:
            going = self._passes[name] = self._next(name, now, before)
        going.began = going.began or now
        rows = self._rows(name, now, going)
        judged, until = 0, monotonic() + _SECONDS
        while judged < len(rows) and monotonic() < until:
            began = monotonic()
            some = rows[judged : judged + _TOGETHER]
            # Set even if judging fails: then the others have their turn.
            going.reached = some[-1].id
            together_or_alone(
                some,
                lambda rows: self._judge(name, rows, now),
                lambda row, error: logger.error(
                    "no findings can be made of cluster %s in workspace %s: %s", row.id, name, error
                ),
            )
            judged += len(some)
            self._go_on(monotonic() - began)
        if judged < len(rows) or len(rows) == _MOST_READ:
            return judged, False
        self._ended[name] = self._passes.pop(name).began
        return judged, True

    def _next(self, name: str, now: float, before: float) -> _Pass:
        with_silent = not 0 <= now - self._with_silent.get(name, 0.0) < _RENEWED
        if with_silent:
            self._with_silent[name] = now
        return _Pass(now, min(now, self._ended.get(name, before)), with_silent)

    def _rows(self, name: str, now: float, going: _Pass) -> list[Any]:
        seen_at = cluster.c.last_seen_at
        # Nothing new arrives from a silent cluster, so most passes skip it.
        was_heard = or_(
            seen_at > going.since - self._silent_after,
            seen_at > going.since - MISSED_BEATS * cluster.c.interval,
        )
        is_up = cluster.c.stopped_at.is_(None) & (seen_at > now - _GONE)
        recent = or_(
            is_up if going.with_silent else is_up & was_heard,
            cluster.c.stopped_at >= going.since - _CLOCKS,
        )
        query = select_in(name, cluster, cluster.c.id, cluster.c.user, cluster.c.started_at)
        query = query.where(recent, cluster.c.id > going.reached).order_by(cluster.c.id)
        query = query.limit(_MOST_READ)
        with self._engine.connect() as connection:
            return list(connection.execute(query).all())

    def _judge(self, name: str, rows: Sequence[Any], now: float) -> None:
        with self._engine.connect() as connection:
            scope = Scope(connection, name, now, self._silent_after)
            before = _stored(connection, name, [row.id for row in rows])
            changed = []
            for row in rows:
                judged = evidence.of_cluster(scope, self._store, row.id, briefly=True)
                if judged is None:
                    continue
                items = as_rows(judge(judged), row.user, row.started_at, now)
                if _differs(items, before.get(row.id, []), now, judged.cluster.status):
                    changed.append((row.id, items))
        if changed:
            new: list[Item] = []
            with writing(self._engine) as connection:
                for id, items in changed:
                    new += store_findings(connection, name, id, "", items)
            self._report(name, new)


def _stored(connection: Connection, name: str, ids: Iterable[str]) -> dict[str, list[Any]]:
    query = select_in(name, finding, *(finding.c[key] for key in ("cluster", *_SAME, "found_at")))
    by_cluster: dict[str, list[Any]] = {}
    for row in connection.execute(
        query.where(finding.c.cluster.in_(ids), finding.c.computation == "")
    ):
        by_cluster.setdefault(row.cluster, []).append(row)
    return by_cluster


#: Findings of a running cluster are equal if these are: their numbers change with each beat.
_SAME = ("rule", "severity", "suppressed_by")


def _differs(items: list[Item], stored: list[Any], now: float, status: str) -> bool:
    new = sorted(tuple(item[key] or "" for key in _SAME) for item in items)
    old = sorted(tuple(getattr(row, key) or "" for key in _SAME) for row in stored)
    if new != old:
        return True
    renewed_at = min((row.found_at for row in stored), default=now)
    return bool(items) and (status != "running" or now - renewed_at > _RENEWED)
