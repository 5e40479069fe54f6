"""How long each workspace keeps each kind of data: defaults and own settings."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, insert

from daskscope.errors import ConfigurationError
from daskscope_service.accounts import audit
from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import take_turns, writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import retention as table


@dataclass(frozen=True, slots=True)
class RetainedKind:
    """A kind of data. ``days``: how long it is kept by default; ``help``: what it includes."""

    name: str
    days: int
    help: str


KINDS = (
    RetainedKind(
        "clusters", 400, "clusters, since their last heartbeat, with all their other data"
    ),
    RetainedKind("computations", 180, "computations and their task groups, since they ended"),
    RetainedKind("failures", 180, "exceptions and lost workers"),
    RetainedKind("events", 90, "events of Dask"),
    RetainedKind("profiles", 30, "profiles and task streams"),
    RetainedKind("spans", 30, "spans of traces"),
    RetainedKind("logs", 30, "log records"),
    RetainedKind("series-full", 7, "time series in full resolution; then one point per 5 minutes"),
    RetainedKind("series-5min", 60, "time series with one point per 5 minutes; then one per hour"),
    RetainedKind("series", 400, "time series in any resolution"),
)

BY_NAME = {kind.name: kind for kind in KINDS}

#: None of these may be kept for longer than the one after it.
_RISING = ("series-full", "series-5min", "series")

#: The largest number of days: a hundred years.
MOST_DAYS = 36_500

#: Stands for days that were not set.
_UNSET = -1

#: Days by kind; None: forever.
Periods = Mapping[str, int | None]


class UnfitPolicy(ConfigurationError):
    """Days that cannot be set. The message says why; ``kind`` names the kind."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def periods(engine: Engine, workspace: str) -> Periods:
    """Return the days of each kind in ``workspace``: those set, else the defaults."""
    return {kind.name: kind.days for kind in KINDS} | periods_set(engine, workspace)


def periods_set(engine: Engine, workspace: str) -> dict[str, int | None]:
    """Return the days that were set in ``workspace``, without defaults."""
    with engine.connect() as connection:
        return _set_in(connection, workspace)


def set_period(engine: Engine, workspace: str, kind: str, days: int | None) -> None:
    """Keep ``kind`` for ``days`` days in ``workspace``; None: forever. Raises as set_periods."""
    with _own_as_operator(engine, workspace) as own:
        own[kind] = days


def unset_period(engine: Engine, workspace: str, kind: str) -> None:
    """Go back to the default of ``kind`` in ``workspace``. Raises as set_periods."""
    with _own_as_operator(engine, workspace) as own:
        own.pop(kind, None)


@contextmanager
def _own_as_operator(engine: Engine, workspace: str) -> Iterator[dict[str, int | None]]:
    """Yield the days that were set, to be changed: nobody else changes them meanwhile."""
    with writing(engine) as connection:
        _take_turns(connection, workspace)
        own = _set_in(connection, workspace)
        yield own
        set_periods(Change(connection, workspace, audit.OPERATOR), own)


def set_periods(change: Change, own: Periods) -> None:
    """Keep each kind for as many days as ``own`` says; kinds that it lacks get their defaults.

    Raises
    ------
    UnfitPolicy
        Fewer days than one, more than a hundred years, or finer points of series would be kept
        for longer than coarser ones.
    """
    connection, workspace = change.connection, change.workspace
    _take_turns(connection, workspace)
    before = _set_in(connection, workspace)
    check(own, before)
    changed = [
        f"{kind.name}: {in_words(own.get(kind.name, kind.days))}"
        + ("" if kind.name in own else " (the default)")
        for kind in KINDS
        if own.get(kind.name, _UNSET) != before.get(kind.name, _UNSET)
    ]
    if not changed:
        return
    connection.execute(delete(table).where(table.c.workspace == workspace))
    rows = [{"workspace": workspace, "kind": kind, "days": own[kind]} for kind in own]
    if rows:
        connection.execute(insert(table), rows)
    change.log("retention changed", "; ".join(changed))


def check(own: Periods, before: Periods = types.MappingProxyType({})) -> None:
    """Raise :class:`UnfitPolicy` if ``own`` cannot be set; ``before`` is what was set until now."""
    for kind, days in own.items():
        if days is not None and not 1 <= days <= MOST_DAYS:
            raise UnfitPolicy(
                kind,
                f"{kind} cannot be kept for {days} days; choose 1 to {MOST_DAYS}, or forever",
            )
    wanted = {kind.name: kind.days for kind in KINDS} | dict(own)
    for finer, coarser in itertools.pairwise(_RISING):
        if _or_ever(wanted[finer]) > _or_ever(wanted[coarser]):
            changed = own.get(coarser, _UNSET) != before.get(coarser, _UNSET)
            kind, other = (coarser, finer) if changed else (finer, coarser)
            raise UnfitPolicy(
                kind,
                f"{finer} ({in_words(wanted[finer])}) would be kept for longer than {coarser} "
                f"({in_words(wanted[coarser])}); set {other} first, or both at once",
            )


def in_words(days: int | None) -> str:
    """Return ``days`` in words."""
    return "forever" if days is None else f"{days} day{'' if days == 1 else 's'}"


def _take_turns(connection: Connection, workspace: str) -> None:
    # Before the days are read that a change is compared with.
    take_turns(connection, f"retention of {workspace}")


def _or_ever(days: int | None) -> float:
    return float("inf") if days is None else days


def _set_in(connection: Connection, workspace: str) -> dict[str, int | None]:
    rows = connection.execute(select_in(workspace, table, table.c.kind, table.c.days))
    return {kind: days for kind, days in rows if kind in BY_NAME}
