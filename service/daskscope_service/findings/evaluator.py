"""Judges computations when they end, and each minute while they run; clusters likewise.

All of a workspace are judged anew when its prices change, for what findings cost is stored. The
writer marks a computation as due with each row that arrives (``judge_at``). Of all processes that
share a database, one at a time looks for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, Select, delete, exists, insert, or_, select, tuple_, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, computation, finding, price, workspace
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.findings.finding import Finding
from daskscope_service.insight.findings.rules import judge
from daskscope_service.periodic import Lease, in_each
from daskscope_service.queries import evidence
from daskscope_service.telemetry.store import SeriesStore

#: The work of the lease.
WORK = "findings"

#: Seconds between two looks at what is due, and at clusters; of a computation that runs.
ROUND_SECONDS = 5.0
_CLUSTER_SECONDS = _RUNNING_SECONDS = 60.0

#: Computations of a workspace that are judged in one round, and that are written together.
_AT_ONCE, _TOGETHER = 200, 20
#: While heartbeats are being written, each second of judging is followed by so many without, at
#: most: both need the interpreter, and what is concluded can wait.
_PAUSE, _LOOK_AGAIN = 3.0, 0.05
#: When those that are made anew are due.
_ANEW = 0.0
#: Computations that are marked in one transaction.
_MARKED_TOGETHER = 1000
#: Beats after the end of a computation until all of its measurements have arrived.
_SETTLES = 3

#: Seconds after which what is stored of a running cluster is renewed though only numbers changed.
_RENEWED = 600.0
#: Seconds by which a scheduler's clock may be behind.
_CLOCKS = 600.0
#: Clusters silent for longer than this are not looked at any more.
_GONE = 86_400.0


class Evaluator:
    """Makes the findings of all workspaces, a round at a time.

    ``writer_is_busy`` returns whether requests wait for what they sent to be stored.
    """

    def __init__(
        self,
        engine: Engine,
        store: SeriesStore,
        silent_after: float,
        writer_is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._store = store
        self._silent_after = silent_after
        self._writer_is_busy = writer_is_busy
        self._lease = Lease(engine, WORK)
        self._clusters_at = 0.0

    def round(self) -> int:
        """Judge what is due, and return how much that was."""
        now = time.time()
        of_clusters = now - self._clusters_at >= _CLUSTER_SECONDS
        with self._engine.connect() as connection:
            # By one statement: there may be hundreds of workspaces, and most have nothing due.
            any_due = exists(_due(workspace.c.id, now))
            due = list(connection.execute(select(workspace.c.id).where(any_due)).scalars())
            names = (
                list(connection.execute(select(workspace.c.id)).scalars()) if of_clusters else []
            )
        if not (due or of_clusters) or not self._lease.take():
            return 0
        done = False
        try:
            judged = in_each(due, lambda name: self._computations(name, now))
            if of_clusters:
                repriced = self._repriced()
                since = dict.fromkeys(names, self._lease.done_at() or 0.0)
                since |= dict.fromkeys(repriced, 0.0)
                judged += in_each(names, lambda name: self._clusters(name, now, since[name]))
                self._priced(repriced)
                self._clusters_at = now
                done = True
        finally:
            self._lease.give_back(done=done)
        return judged

    def _computations(self, name: str, now: float) -> int:
        with self._engine.connect() as connection:
            # Those that are only to be made anew come last: there may be a million of them.
            by_time = _due(name, now).order_by(computation.c.judge_at)
            fresh = by_time.where(computation.c.judge_at > _ANEW).limit(_AT_ONCE)
            rows = [*connection.execute(fresh)]
            anew = by_time.where(computation.c.judge_at <= _ANEW).limit(_AT_ONCE - len(rows))
            rows += connection.execute(anew).all()
        for first in range(0, len(rows), _TOGETHER):
            some = rows[first : first + _TOGETHER]
            began = time.monotonic()
            with self._engine.connect() as connection:
                scope = Scope(connection, name, now, self._silent_after)
                judged = [self._judged(scope, row) for row in some]
            with writing(self._engine) as connection:
                for row, (found, next_at) in zip(some, judged, strict=True):
                    _store(connection, name, row.cluster, row.id, found)
                    connection.execute(
                        update(computation)
                        .where(computation.c.workspace == name)
                        .where(computation.c.cluster == row.cluster, computation.c.id == row.id)
                        # One that came meanwhile is due.
                        .where(computation.c.seq == row.seq)
                        .values(judge_at=next_at)
                    )
            self._lease.renew()
            self._let_the_writer_go_first(time.monotonic() - began)
        return len(rows)

    def _judged(self, scope: Scope, row: Any) -> tuple[list[Item], float | None]:
        """Return the findings of a computation, and when to look at it again: None for never."""
        found = evidence.of_computation(scope, self._store, row.cluster, row.id)
        if found is None or found.run is None:
            return [], None
        run, of = found.run, found.cluster
        next_at: float | None = None
        if of.status == "running":
            known_for = of.started_at + of.duration - run.ended_at
            if run.status == "running":
                next_at = scope.now + _RUNNING_SECONDS
            elif known_for < _SETTLES * found.interval:
                next_at = scope.now + found.interval
        whose = scope.select(computation, computation.c.user).where(
            computation.c.cluster == row.cluster, computation.c.id == row.id
        )
        user = scope.connection.execute(whose).scalar() or ""
        items = [
            _row(one, place, user, run.started_at, scope.now)
            for place, one in enumerate(judge(found).findings)
        ]
        return items, next_at

    def _repriced(self) -> dict[str, float]:
        """Mark all computations of workspaces whose prices have changed; return those, and when."""
        query = select(price.c.workspace, price.c.changed_at).where(price.c.findings_due)
        with self._engine.connect() as connection:
            found = {row.workspace: row.changed_at for row in connection.execute(query)}
        for name in found:
            _mark(self._engine, name)
        return found

    def _priced(self, repriced: dict[str, float]) -> None:
        for name, changed_at in repriced.items():
            with writing(self._engine) as connection:
                connection.execute(
                    update(price)
                    .where(price.c.workspace == name, price.c.changed_at == changed_at)
                    .values(findings_due=False)
                )

    def _clusters(self, name: str, now: float, since: float) -> int:
        """Judge the clusters that are up, and those that stopped since then."""
        with self._engine.connect() as connection:
            recent = or_(
                cluster.c.stopped_at.is_(None) & (cluster.c.last_seen_at > now - _GONE),
                cluster.c.stopped_at >= since - _CLOCKS,
            )
            query = select_in(name, cluster, cluster.c.id, cluster.c.user, cluster.c.started_at)
            rows = connection.execute(query.where(recent)).all()
        for first in range(0, len(rows), _TOGETHER):
            some = rows[first : first + _TOGETHER]
            began = time.monotonic()
            with self._engine.connect() as connection:
                scope = Scope(connection, name, now, self._silent_after)
                stored = _stored(connection, name, [row.id for row in some])
                changed = []
                for row in some:
                    found = evidence.of_cluster(scope, self._store, row.id, briefly=True)
                    if found is None:
                        continue
                    items = [
                        _row(one, place, row.user, row.started_at, now)
                        for place, one in enumerate(judge(found).findings)
                    ]
                    if _differs(items, stored.get(row.id, []), now, found.cluster.status):
                        changed.append((row.id, items))
            if changed:
                with writing(self._engine) as connection:
                    for id, items in changed:
                        _store(connection, name, id, "", items)
            self._lease.renew()
            self._let_the_writer_go_first(time.monotonic() - began)
        return len(rows)

    def _let_the_writer_go_first(self, seconds: float) -> None:
        """Pause after so many ``seconds`` of judging, for as long as the writer has work."""
        until = time.monotonic() + _PAUSE * seconds
        while self._writer_is_busy() and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN)


def _due(name: Any, now: float) -> Select[Any]:
    """Return a SELECT of what is due in one workspace: of the key and ``seq`` of computations."""
    columns = [computation.c[key] for key in ("cluster", "id", "seq")]
    return select_in(name, computation, *columns).where(computation.c.judge_at <= now)


def mark_all(engine: Engine, name: str) -> int:
    """Have all findings of a workspace made anew; return of how many computations."""
    marked = _mark(engine, name)
    Lease(engine, WORK).forget()
    return marked


def _mark(engine: Engine, name: str) -> int:
    key = [computation.c.cluster, computation.c.id]
    query = select_in(name, computation, *key).order_by(*key).limit(_MARKED_TOGETHER)
    marked, more = 0, query
    while True:
        with writing(engine) as connection:
            rows = connection.execute(more).all()
            if not rows:
                break
            last = tuple(rows[-1])
            connection.execute(
                update(computation)
                .where(computation.c.workspace == name, computation.c.judge_at.is_(None))
                .where(tuple_(*key) >= tuple(rows[0]), tuple_(*key) <= last)
                .values(judge_at=_ANEW)
            )
        marked += len(rows)
        more = query.where(tuple_(*key) > last)
    return marked


def _row(one: Finding, place: int, user: str, at: float, now: float) -> Item:
    item = asdict(one)
    del item["clause"], item["muted"]
    return item | {
        "sentence": one.sentence,
        "position": place,
        "user": user,
        "at": at,
        "found_at": now,
    }


def _stored(connection: Any, name: str, ids: Iterable[str]) -> dict[str, list[Any]]:
    query = select_in(name, finding, *(finding.c[key] for key in ("cluster", *_SAME, "found_at")))
    found: dict[str, list[Any]] = {}
    for row in connection.execute(
        query.where(finding.c.cluster.in_(ids), finding.c.computation == "")
    ):
        found.setdefault(row.cluster, []).append(row)
    return found


#: What a stored finding of a running cluster is compared by: its numbers change with each beat.
_SAME = ("rule", "severity", "suppressed_by")


def _differs(items: list[Item], stored: list[Any], now: float, status: str) -> bool:
    new = sorted(tuple(item[key] or "" for key in _SAME) for item in items)
    old = sorted(tuple(getattr(row, key) or "" for key in _SAME) for row in stored)
    if new != old:
        return True
    renewed_at = min((row.found_at for row in stored), default=now)
    return bool(items) and (status != "running" or now - renewed_at > _RENEWED)


def _store(connection: Any, name: str, of_cluster: str, id: str, items: list[Item]) -> None:
    connection.execute(
        delete(finding)
        .where(finding.c.workspace == name, finding.c.cluster == of_cluster)
        .where(finding.c.computation == id)
    )
    if items:
        connection.execute(
            insert(finding),
            [
                item
                | {
                    "workspace": name,
                    "cluster": of_cluster,
                    "computation": id,
                    "id": f"{id}:{item['rule']}",
                }
                for item in items
            ],
        )
