"""A clock that was a year ahead holds nothing back once it is right again."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import Engine, select

from daskscope_service.accounts import login_rate_limit
from daskscope_service.accounts.login_rate_limit import FOR_NAME, WINDOW, TooMany
from daskscope_service.costs import usage_sums
from daskscope_service.db import schema
from daskscope_service.db.clock import repair
from daskscope_service.db.engine import writing
from daskscope_service.periodic import Lease
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
    with pytest.raises(TooMany) as refused:
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
