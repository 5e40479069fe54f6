"""A clock that was a year ahead holds nothing back once it is right again."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import Engine, select

from daskscope_service.accounts import login_rate_limit
from daskscope_service.accounts.login_rate_limit import FOR_NAME, WINDOW, TooManyAttempts
from daskscope_service.costs import usage_sums
from daskscope_service.db import schema
from daskscope_service.db.clock import Jumps, repair
from daskscope_service.db.engine import writing
from daskscope_service.periodic import Lease
from daskscope_service.retention.rounds import removal
from daskscope_service.service_metrics import ServiceMetrics
from tests.patience import PATIENCE
from tests.service.test_retention import put

YEAR, DAY = 365 * 86_400.0, 86_400.0


def times(engine: Engine, *tables: str) -> list[float]:
    """Return the times that hold something back."""
    with engine.connect() as connection:
        return [
            value
            for table in tables
            for column in schema.metadata.tables[table].c
            if column.name in ("done_at", "expires_at", "told_until", "next_at", "judge_at", "at")
            for value in connection.execute(select(column)).scalars()
        ]


def test_what_a_wrong_clock_planned_waits_no_longer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + YEAR)
    ahead = time.time()
    lease = Lease(engine, "retention")
    assert lease.take()
    lease.give_back(done=True)
    for _ in range(FOR_NAME):
        login_rate_limit.begin(engine, "ada", "192.0.2.1", kind="name")
    put(
        engine,
        schema.notification_target,
        address="json://x",
        told_until=ahead,
        next_at=ahead + 300,
    )
    put(engine, schema.computation, judge_at=ahead + 60, job_due_at=ahead)
    put(engine, schema.job, due_at=ahead + DAY)
    day = int(ahead // DAY)
    with writing(engine) as connection:
        name = usage_sums.announce(connection, "default", 1, [day])
        usage_sums.keep(connection, "default", 1, name, {day: []})

    monkeypatch.setattr(time, "time", right)
    assert repair(engine)
    late = time.time() + 1
    assert all(one < late for one in times(engine, "lease", "notification_target", "computation"))
    with pytest.raises(TooManyAttempts) as refused:
        login_rate_limit.begin(engine, "ada", "192.0.2.1", kind="name")
    assert refused.value.until < late + WINDOW
    with engine.connect() as connection:
        assert usage_sums.days_kept(connection, "default", 1) == set()
    assert repair(engine) == 0


def test_what_is_planned_by_a_right_clock_stays(engine: Engine) -> None:
    now = time.time()
    put(engine, schema.job, due_at=now + DAY)
    put(engine, schema.notification_target, address="json://x", told_until=now, next_at=now + 3600)
    lease = Lease(engine, "retention")
    assert lease.take()
    before = times(engine, "lease", "notification_target", "job")
    assert repair(engine) == 0
    assert times(engine, "lease", "notification_target", "job") == before


def test_after_the_clock_jumped_ahead_nothing_is_removed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, schema.event, at=time.time() - 3600)
    looked = threading.Event()
    recent = Jumps.is_recent

    def look(jumps: Jumps) -> bool:
        try:
            return recent(jumps)
        finally:
            looked.set()

    monkeypatch.setattr(Jumps, "is_recent", look)
    right = time.time
    task = removal(engine, interval=0.1, instruments=ServiceMetrics())
    monkeypatch.setattr(time, "time", lambda: right() + YEAR)
    try:
        looked.clear()
        assert looked.wait(PATIENCE)
    finally:
        task.close()
    with engine.connect() as connection:
        assert connection.execute(select(schema.event.c.id)).first() is not None


def test_a_jump_ahead_counts_for_a_day_or_until_the_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, uptime = 1e9, 1e5
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "clock_gettime", lambda _: uptime)
    jumps = Jumps()
    now, uptime = now + 3600, uptime + 3600
    assert not jumps.is_recent()
    now += YEAR
    assert jumps.is_recent()
    now -= YEAR
    assert not jumps.is_recent()
    now += YEAR
    assert jumps.is_recent()
    now, uptime = now + DAY - 1, uptime + DAY - 1
    assert jumps.is_recent()
    now, uptime = now + 2, uptime + 2
    assert not jumps.is_recent()
