"""How much data a workspace has, and may have.

A thread counts clusters and series every minute, and estimates bytes every ten. Then data beyond a
quota is refused until there is room; accepted data stays. In between, clusters and series that may
be new get a place before they are stored; if there are not enough places, or if there was no count
since the service started, those of the workspace are counted anew. What is accepted after an
estimate of bytes is added to it with its size as it arrived. That may be far more than it takes:
most rows replace others. So once it is half of the room that was left, bytes are estimated anew.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Table, func, select

from daskscope_service.db import schema
from daskscope_service.db.data_ownership import TABLES
from daskscope_service.db.rows import select_in
from daskscope_service.db.space import row_bytes
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.settings import Settings, variable
from daskscope_service.web.problems import Problem

Kind = Literal["clusters", "series", "bytes"]
KINDS: tuple[Kind, ...] = ("clusters", "series", "bytes")
#: A workspace, and what of it is counted.
_Counted = tuple[str, Kind]

#: Seconds between two counts, but at least so many times the duration of the last count; and the
#: number of counts between two estimates of bytes.
SECONDS = 60.0
_TIMES = 20.0
_ROUNDS_OF_BYTES = 10

#: Seconds after which a sender may try again.
_RETRY_AFTER = 300

#: How many rows are measured, and of how many series the points are counted.
_MEASURED = 100

#: Bytes that a point takes on the disk (docs/operations.md), and the factor that indexes add to
#: rows.
_POINT_BYTES = 26
_WITH_INDEXES = 1.3


@dataclass(frozen=True, slots=True)
class Use:
    """A workspace's use of one quota: ``used`` of ``limit``; 0 is no limit.

    ``used`` is None until the first count, a minute after the service started.
    """

    kind: Kind
    used: int | None
    limit: int
    setting: str

    @property
    def full(self) -> bool:
        """Whether there is no room for more."""
        return self.used is not None and 0 < self.limit <= self.used


class Quotas:
    """Knows what workspaces have stored, as of the last count. May be used from any thread.

    Each process has its own, and does not know what others have accepted since the last count.
    """

    def __init__(self, engine: Engine, settings: Settings, instruments: ServiceMetrics) -> None:
        self._engine = engine
        self._limits: dict[Kind, tuple[int, str]] = {
            kind: (getattr(settings, f"quota_{kind}"), variable(f"quota_{kind}")) for kind in KINDS
        }
        self._instruments = instruments
        self._used: Mapping[Kind, Mapping[str, int]] = {kind: {} for kind in KINDS}
        self._full: frozenset[tuple[str, Kind]] = frozenset()
        #: Bytes that workspaces have sent since theirs were estimated.
        self._accepted: Counter[str] = Counter()
        #: Places that were given to clusters and series, which may have been new: all; those that
        #: are not stored yet; and those that the last count contains.
        self._given: Counter[_Counted] = Counter()
        self._pending: Counter[_Counted] = Counter()
        self._contained: Counter[_Counted] = Counter()
        self._not_anew_before: dict[_Counted, float] = {}
        self._lock = threading.Lock()
        self._rounds = 0
        self._not_before = 0.0

    def of(self, workspace: str) -> list[Use]:
        """Return the use of each quota of ``workspace``."""
        counted = self._rounds > 0
        return [
            Use(kind, self._use(workspace, kind) if counted else None, *self._limits[kind])
            for kind in KINDS
        ]

    def note(self, workspace: str, size: int) -> None:
        """Note that data of ``workspace`` that arrived with so many bytes was stored."""
        with self._lock:
            self._accepted[workspace] += size

    def take(self, workspace: str, kind: Literal["clusters", "series"], new: int) -> int:
        """Return how many of ``new`` may be stored, which may be known already; hold their places.

        The caller calls :meth:`settle` with this number, whatever becomes of them.
        """
        limit, _ = self._limits[kind]
        counted = workspace, kind
        if not limit:
            return new
        if counted in self._full:
            return 0
        places = self._take(counted, limit, new, at_least=new)
        if not places and time.monotonic() >= self._not_anew_before.get(counted, 0.0):
            self._count_anew(workspace, kind)
        return places or self._take(counted, limit, new)

    def _take(self, counted: _Counted, limit: int, new: int, at_least: int = 1) -> int:
        """Hold ``new`` places, or as many as there are; none if these are fewer than that."""
        workspace, kind = counted
        with self._lock:
            if not self._is_counted(workspace, kind):
                return 0
            since = self._given[counted] - self._contained[counted]
            places = min(new, limit - self._use(workspace, kind) - since)
            if places < at_least:
                return 0
            self._given[counted] += places
            self._pending[counted] += places
        return places

    def settle(
        self, workspace: str, kind: Literal["clusters", "series"], places: int, used: int
    ) -> None:
        """Give back ``places`` of :meth:`take`, but for those ``used`` by what was stored."""
        if places and self._limits[kind][0]:
            with self._lock:
                self._pending[workspace, kind] -= places
                self._given[workspace, kind] -= places - used

    def _is_counted(self, workspace: str, kind: Kind) -> bool:
        return self._rounds > 0 or workspace in self._used[kind]

    def _count_anew(self, workspace: str, kind: Literal["clusters", "series"]) -> None:
        counted = workspace, kind
        began, contained = time.monotonic(), self._stored()
        table = schema.cluster if kind == "clusters" else schema.series
        with self._engine.connect() as connection:
            used = connection.execute(select_in(workspace, table, func.count())).scalar_one()
        ended = time.monotonic()
        with self._lock:
            self._not_anew_before[counted] = ended + _TIMES * (ended - began)
            self._contained[counted] = contained[counted]
            self._used = {**self._used, kind: {**self._used[kind], workspace: used}}
            if used >= self._limits[kind][0]:
                self._full |= {counted}

    def _stored(self) -> Counter[_Counted]:
        """Return the places of what is stored by now, so that a count that begins contains it."""
        with self._lock:
            stored = self._given.copy()
            stored.subtract(self._pending)
        return stored

    def check(self, workspace: str) -> None:
        """Raise Problem if ``workspace`` may store nothing more."""
        limit, _ = self._limits["bytes"]
        if 0 < limit <= self._use(workspace, "bytes"):
            raise self.problem(workspace, "bytes")

    def _use(self, workspace: str, kind: Kind) -> int:
        used = self._used[kind].get(workspace, 0)
        return used + self._accepted[workspace] if kind == "bytes" else used

    def problem(self, workspace: str, kind: Kind) -> Problem:
        """Return the answer to a request beyond a quota, and count the refusal."""
        self._instruments.refused.labels("quota").inc()
        return Problem(
            429,
            f"{self.sentence(workspace, kind)} Nothing was stored; send this again later.",
            title="Quota used up",
            headers={"Retry-After": str(_RETRY_AFTER)},
            reason=f"quota of {kind}",
        )

    def sentence(self, workspace: str, kind: Kind) -> str:
        """Return in words which quota is used up, and what to do."""
        limit, setting = self._limits[kind]
        used = self._use(workspace, kind)
        about = "about " if kind == "bytes" else ""
        return (
            f"The workspace {workspace!r} has {about}{used:,} {kind}; its quota is {limit:,} "
            f"({setting}). Remove older data (Settings, Retention), or ask the operator of "
            "the service for a larger quota."
        )

    def round(self) -> None:
        """Count again, unless the last count took so long that it is too soon."""
        began = time.monotonic()
        if began >= self._not_before:
            self.count()
            self._not_before = began + _TIMES * (time.monotonic() - began)

    def count(self) -> None:
        """Count the data of all workspaces."""
        contained = self._stored()
        with self._lock:
            before = self._accepted.copy()  # is in the database by now
        with self._engine.connect() as connection:
            workspaces = connection.execute(select(schema.workspace.c.id)).scalars().all()
            series = _by_workspace(connection, schema.series)
            estimated = {
                name: bytes_of(connection, name, series.get(name, 0))
                for name in self._to_estimate(workspaces, before)
            }
            used: dict[Kind, Mapping[str, int]] = {
                "clusters": _by_workspace(connection, schema.cluster),
                "series": series,
                "bytes": {
                    name: estimated.get(name, self._used["bytes"].get(name, 0))
                    for name in workspaces
                },
            }
        with self._lock:
            self._rounds += 1
            self._used = used
            self._contained = contained
            self._not_anew_before.clear()
            for name, size in before.items():
                if name in estimated or name not in used["bytes"]:  # it may have been removed
                    self._accepted[name] -= size
            self._accepted = +self._accepted
            self._full = frozenset(
                (name, use.kind) for name in workspaces for use in self.of(name) if use.full
            )
        gauge = self._instruments.workspace_use
        gauge.clear()
        for name in workspaces:
            for kind in KINDS:
                gauge.labels(name, kind).set(used[kind].get(name, 0))

    def _to_estimate(self, workspaces: Iterable[str], accepted: Mapping[str, int]) -> list[str]:
        """Return the workspaces whose bytes are to be estimated now."""
        if self._rounds % _ROUNDS_OF_BYTES == 0:
            return list(workspaces)
        limit, _ = self._limits["bytes"]
        rooms = {name: limit - self._used["bytes"].get(name, 0) for name in workspaces}
        return [
            name
            for name, room in rooms.items()
            if limit and accepted.get(name, 0) > max(room, 0) / 2
        ]


def bytes_of(connection: Connection, workspace: str, series: int) -> int:
    """Return about how many bytes ``workspace``, which has so many ``series``, takes on the disk.

    This is estimated from the number of its rows, and the sizes of some.
    """
    tables = (*TABLES, schema.code)
    rows = sum(_bytes_in(connection, workspace, table) for table in tables)
    return int(rows + _POINT_BYTES * _points(connection, workspace, series))


def _bytes_in(connection: Connection, workspace: str, table: Table) -> float:
    rows = connection.execute(select_in(workspace, table, func.count())).scalar_one()
    if not rows:
        return 0.0
    size = row_bytes(connection.dialect.name, table).label("size")
    some = select_in(workspace, table, size).limit(_MEASURED).subquery()
    mean = connection.execute(select(func.avg(some.c.size))).scalar_one()
    return float(_WITH_INDEXES * rows * float(mean or 0))


def _points(connection: Connection, workspace: str, series: int) -> float:
    if not series:
        return 0.0
    table, point = schema.series, schema.point
    every = max(series // _MEASURED, 1)
    some = (
        select_in(workspace, table, table.c.id).where(table.c.id % every == 0).limit(2 * _MEASURED)
    )
    ids = connection.execute(some).scalars().all()
    if not ids:
        return 0.0
    counted: Any = select(func.count()).select_from(point).where(point.c.series.in_(ids))
    return float(series * connection.execute(counted).scalar_one() / len(ids))


def _by_workspace(connection: Connection, table: Table) -> dict[str, int]:
    query = select(table.c.workspace, func.count()).group_by(table.c.workspace)
    return {name: int(count) for name, count in connection.execute(query)}
