"""Makes the findings of computations, at their end and each minute while they run, and of clusters.

The writer marks a computation as due with each row that arrives (``judge_at``). When the prices or
thresholds of a workspace change, all its findings are made again, because they contain costs and
depend on thresholds. If several processes share a database, one at a time does this work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, exists, select, tuple_, update

from daskscope_service.db.engine import writing, writing_again
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import computation, finding, price, threshold, workspace
from daskscope_service.db.scope import Item, Scope
from daskscope_service.findings.cluster_passes import ClusterPasses
from daskscope_service.findings.stored_findings import as_rows, store_findings
from daskscope_service.insight.findings.rules import judge
from daskscope_service.periodic import Lease, SomeFailed, in_each, together_or_alone
from daskscope_service.queries import evidence
from daskscope_service.queries.among import among
from daskscope_service.queries.job_runs import sum_up_jobs_of
from daskscope_service.telemetry.store import SeriesStore

logger = logging.getLogger(__name__)

#: The tables of settings that findings depend on.
_SETTINGS = (price, threshold)
#: The name of the lease.
WORK = "findings"

#: Seconds between two rounds; between two rounds that judge clusters, too; and between two
#: judgements of a running computation.
ROUND_SECONDS = 5.0
_CLUSTER_SECONDS = _RUNNING_SECONDS = 60.0

#: The most computations of a workspace that are judged in one round, and that are stored together.
_AT_ONCE, _TOGETHER = 200, 20
#: While heartbeats wait to be written, each second of judging is followed by a pause of at most so
#: many seconds: both need the interpreter, and findings can wait. Then the seconds between two
#: looks at whether the writer is still busy.
_PAUSE, _LOOK_AGAIN = 3.0, 0.05
#: Seconds, about, for computations of one workspace in a round: other workspaces have a turn, too.
_SECONDS = 2.0
#: Seconds after which a computation is judged again if that failed.
_FAILED_AGAIN = 600.0
#: ``judge_at`` of computations whose findings are to be made again.
_ANEW = 0.0
#: Computations that are marked in one transaction.
_MARKED_TOGETHER = 1000
#: Beats after the end of a computation within which its last measurements arrive.
_SETTLES = 3
#: Seconds until a computation is judged again that a correction took from its job, until it has one
#: again. Who gives other computations their job has them judged again.
_JOB_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Judged:
    """The findings of a computation, when to judge it again (None: never), and if it has ended.

    ``job`` is the id of its job, by which it was judged; None: it had none.
    """

    findings: list[Item]
    next_at: float | None
    has_ended: bool
    job: str | None = None


class Evaluator:
    """Makes the findings of all workspaces, in rounds.

    ``writer_is_busy`` returns whether requests wait until the writer has stored what they sent.
    ``report`` gets the new findings of a workspace, once they are stored.
    """

    def __init__(
        self,
        engine: Engine,
        store: SeriesStore,
        silent_after: float,
        writer_is_busy: Callable[[], bool] = lambda: False,
        report: Callable[[str, list[Item]], None] = lambda workspace, findings: None,
    ) -> None:
        self._engine = engine
        self._store = store
        self._silent_after = silent_after
        self._writer_is_busy = writer_is_busy
        self._report = report
        self._lease = Lease(engine, WORK)
        self._clusters_at = 0.0
        # By workspace: when the prices or thresholds by which it is judged were changed.
        self._repricing: dict[str, float | None] = {}
        self._passes = ClusterPasses(engine, store, silent_after, self._let_others_go_on, report)

    def round(self) -> int:
        """Judge the computations and clusters that are due; return how many they were."""
        now = time.time()
        # Also true if the clock was ahead and has been set back.
        of_clusters = not 0 <= now - self._clusters_at < _CLUSTER_SECONDS
        with self._engine.connect() as connection:
            # In one statement: there may be hundreds of workspaces, most of them with nothing due.
            any_due = exists(_due(workspace.c.id, now))
            due = list(connection.execute(select(workspace.c.id).where(any_due)).scalars())
            names = (
                list(connection.execute(select(workspace.c.id)).scalars()) if of_clusters else []
            )
        if not (due or of_clusters) or not self._lease.take():
            return 0
        done, failed = False, None
        try:
            try:
                judged = in_each(due, lambda name: self._computations(name, now))
            except SomeFailed as error:  # clusters are judged all the same
                judged, failed = 0, error
            if of_clusters:
                judged += self._clusters(names, now)
                self._clusters_at = now
                done = True
        finally:
            self._lease.give_back(done=done)
        if failed is not None:
            raise failed
        return judged

    def _clusters(self, names: list[str], now: float) -> int:
        before = self._lease.done_at() or 0.0
        repriced = self._repriced()

        def judged(name: str) -> int:
            changed_at = repriced.get(name)
            if changed_at != self._repricing.get(name):
                self._repricing[name] = changed_at
                _mark(self._engine, name)
                self._passes.begin_anew(name)
            count, has_ended = self._passes.round(name, now, before)
            if has_ended and changed_at is not None:
                self._priced(name, changed_at)
            return count

        return in_each(names, judged)

    def _computations(self, name: str, now: float) -> int:
        with self._engine.connect() as connection:
            # Those whose findings are only made again come last: there may be a million of them.
            by_time = _due(name, now).order_by(computation.c.judge_at)
            fresh = by_time.where(computation.c.judge_at > _ANEW).limit(_AT_ONCE)
            rows = [*connection.execute(fresh)]
            anew = by_time.where(computation.c.judge_at <= _ANEW).limit(_AT_ONCE - len(rows))
            rows += connection.execute(anew).all()
        judged, until = 0, time.monotonic() + _SECONDS
        while judged < len(rows) and time.monotonic() < until:
            some = rows[judged : judged + _TOGETHER]
            began = time.monotonic()
            together_or_alone(
                some,
                lambda rows: self._judge(name, rows, now),
                lambda row, error: self._failed(name, row, error, now),
            )
            judged += len(some)
            self._let_others_go_on(time.monotonic() - began)
        return judged

    def _failed(self, name: str, row: Any, error: str, now: float) -> None:
        logger.error(
            "no findings can be made of computation %s of cluster %s in workspace %s: %s",
            *(row.id, row.cluster, name, error),
        )
        with writing(self._engine) as connection:
            _judged_at(connection, name, row, now + _FAILED_AGAIN)

    def _judge(self, name: str, rows: Sequence[Any], now: float) -> None:
        with self._engine.connect() as connection:
            scope = Scope(connection, name, now, self._silent_after)
            judged = [self._judged(scope, row) for row in rows]
        new: list[Item] = []
        with writing(self._engine) as connection:
            had = _with_findings(connection, name, rows)
            for row, one in zip(rows, judged, strict=True):
                new += store_findings(connection, name, row.cluster, row.id, one.findings)
                # If it has got its job meanwhile, it stays due.
                same_job = computation.c.job.is_not_distinct_from(one.job)
                _judged_at(connection, name, row, one.next_at, same_job)
        self._report(name, new)
        changed = [
            (row.cluster, row.id)
            for row, one in zip(rows, judged, strict=True)
            if one.has_ended and (one.findings or (row.cluster, row.id) in had)
        ]
        if changed:
            # Not in the same transaction: the one that names jobs locks them before computations.
            writing_again(
                self._engine,
                lambda connection: sum_up_jobs_of(connection, name, changed, time.time()),
            )

    def _judged(self, scope: Scope, row: Any) -> _Judged:
        columns = [computation.c[name] for name in ("user", "job", "job_due_at")]
        whose = scope.connection.execute(
            scope.select(computation, *columns).where(
                computation.c.cluster == row.cluster, computation.c.id == row.id
            )
        ).first()
        gathered = evidence.of_computation(scope, self._store, row.cluster, row.id)
        if whose is None:
            return _Judged([], None, has_ended=True)
        if gathered is None or gathered.run is None:
            return _Judged([], None, has_ended=True, job=whose.job)
        run, of = gathered.run, gathered.cluster
        next_at: float | None = None
        runs = of.status == "running" and run.status == "running"
        if of.status == "running":
            known_for = of.started_at + of.duration - run.ended_at
            if runs:
                next_at = scope.now + _RUNNING_SECONDS
            elif known_for < _SETTLES * gathered.interval:
                next_at = scope.now + gathered.interval
        if next_at is None and whose.job is None and whose.job_due_at == 0.0:
            next_at = scope.now + _JOB_SECONDS  # some findings are by the runs of its job
        findings = as_rows(judge(gathered), whose.user, run.started_at, scope.now)
        return _Judged(findings, next_at, has_ended=not runs, job=whose.job)

    def _repriced(self) -> dict[str, float]:
        """Return when prices or thresholds last changed, by workspace, where findings are due."""
        changed: dict[str, float] = {}
        with self._engine.connect() as connection:
            for table in _SETTINGS:
                query = select(table.c.workspace, table.c.changed_at).where(table.c.findings_due)
                for row in connection.execute(query):
                    changed[row.workspace] = max(row.changed_at, changed.get(row.workspace, 0.0))
        return changed

    def _priced(self, name: str, changed_at: float) -> None:
        """Store that all clusters of a workspace were judged with the changes up to that time."""
        with writing(self._engine) as connection:
            for table in _SETTINGS:
                connection.execute(
                    update(table)
                    .where(table.c.workspace == name, table.c.changed_at <= changed_at)
                    .values(findings_due=False)
                )

    def _let_others_go_on(self, seconds: float) -> None:
        """After ``seconds`` of judging, pause while the writer has work, for a limited time."""
        self._lease.renew()
        until = time.monotonic() + _PAUSE * seconds
        while self._writer_is_busy() and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN)


def _with_findings(connection: Connection, name: str, rows: Sequence[Any]) -> set[tuple[str, str]]:
    """Return the keys of the computations of ``rows`` that have findings."""
    key = (finding.c.cluster, finding.c.computation)
    query = among(select_in(name, finding, *key), key, [(row.cluster, row.id) for row in rows])
    return {(row[0], row[1]) for row in connection.execute(query)}


def _judged_at(
    connection: Connection,
    name: str,
    row: Any,
    next_at: float | None,
    *conditions: ColumnElement[bool],
) -> None:
    """Store when to judge a computation again, under ``conditions``.

    If more of it has arrived meanwhile, ``judge_at`` stays: the writer has set it.
    """
    connection.execute(
        update(computation)
        .where(computation.c.workspace == name)
        .where(computation.c.cluster == row.cluster, computation.c.id == row.id)
        .where(computation.c.seq == row.seq, *conditions)
        .values(judge_at=next_at)
    )


def _due(name: Any, now: float) -> Select[Any]:
    """Return a SELECT of the key and ``seq`` of the computations that are due in one workspace."""
    columns = [computation.c[key] for key in ("cluster", "id", "seq")]
    return select_in(name, computation, *columns).where(computation.c.judge_at <= now)


def mark_all(engine: Engine, name: str) -> int:
    """Have all findings of a workspace made again; return the number of its computations."""
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
