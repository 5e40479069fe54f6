"""Computes sums of usage over past days and weeks in the background, and stores them.

So the pages of usage and costs are as fast after years as after days. Every process does rounds; it
computes only sums that no process has stored.
"""

from __future__ import annotations

import time

from sqlalchemy import Engine, func, select

from daskscope_service.costs import usage_sums
from daskscope_service.costs.spending import monday_of
from daskscope_service.costs.usage import add_up, runs
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import usage, workspace
from daskscope_service.db.scope import Scope
from daskscope_service.periodic import in_each

_DAY = 86400

#: How many sums are stored, by the number of their days: those that pages and programs may need.
_KEPT = {1: 14, 7: 104}

#: Seconds to wait after the end of a day or week: a heartbeat may still be on its way.
_REST = 3600.0

#: How many sums are computed together, of those that are not empty.
_TOGETHER = 4


def sum_up(engine: Engine) -> int:
    """Compute the missing sums in all workspaces, and return how many there were."""
    over = int((time.time() - _REST) // _DAY)
    spans = [
        (days, range(end - _KEPT[days] * days, end, days))
        for days, end in ((1, over), (7, monday_of(over)))
    ]
    with engine.connect() as connection:
        names = connection.execute(select(workspace.c.id)).scalars().all()
    return in_each(
        names, lambda name: sum(_sum_up(engine, name, days, starts) for days, starts in spans)
    )


def _sum_up(engine: Engine, name: str, days: int, starts: range) -> int:
    made = 0
    with engine.connect() as connection:
        used = connection.execute(select_in(name, usage, func.min(usage.c.day))).scalar()
        kept = usage_sums.days_kept(connection, name, days)
    if used is None:
        return 0
    if any(start < starts.start for start in kept):
        with writing(engine) as connection:
            usage_sums.forget_before(connection, name, days, starts.start)
    for run in runs((start for start in starts if start not in kept), days):
        # Of what is before the first usage, all sums are empty, and computed at once.
        done = sum(start + days <= used for start in run)
        if done:
            made += _keep(engine, name, days, run[:done])
        for first in range(done, len(run), _TOGETHER):
            made += _keep(engine, name, days, run[first : first + _TOGETHER])
    return made


def _keep(engine: Engine, name: str, days: int, run: list[int]) -> int:
    with writing(engine) as connection:
        if usage_sums.days_kept(connection, name, days) & set(run):
            return 0  # another process was first; the next round does the rest
        announced = usage_sums.announce(connection, name, days, run)
    # This takes seconds if there are very many clusters. Others can write in the meantime.
    with engine.connect() as connection:
        sums = add_up(Scope(connection, name, time.time(), 0.0), run[0], len(run), days)
    with writing(engine) as connection:
        return usage_sums.keep(connection, name, days, announced, sums)
