"""A removal that PostgreSQL ends, so that a beat's transaction can go on, is done anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, func, select, text, update
from sqlalchemy.exc import DBAPIError

from daskscope_service.db import engine as database
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.retention.removal import remove_keys
from tests.patience import wait_until
from tests.service.test_retention import put

WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    " AND datname = current_database()"
)


def waits(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.execute(WAITING).scalar_one())


def meet(engine: Engine) -> None:
    """Remove two events while another transaction changes them in the other order."""
    if engine.dialect.name != "postgresql":
        pytest.skip("SQLite has one writer at a time, and so no deadlock")
    keys = [("default", "Scheduler-1", id) for id in ("deadlock-1", "deadlock-2")]
    for *_, id in keys:
        put(engine, schema.event, id=id, cluster="Scheduler-1")
    event = schema.event

    def change(id: str) -> None:
        connection.execute(update(event).where(event.c.id == id).values(cut=True))

    with ThreadPoolExecutor() as pool:
        with writing(engine) as connection:
            # The other notices first, and so it is the removal that is ended.
            connection.execute(text("SET LOCAL deadlock_timeout = '100s'"))
            change("deadlock-2")
            removal = pool.submit(remove_keys, engine, event, keys)
            wait_until(lambda: waits(engine))  # for the second, with the first
            change("deadlock-1")
        assert removal.result().rows == 2


def test_a_removal_that_met_a_deadlock_is_done_anew(engine: Engine) -> None:
    meet(engine)
    with engine.connect() as connection:
        left = select(func.count()).where(schema.event.c.id.startswith("deadlock"))
        assert connection.execute(left).scalar_one() == 0


def test_it_is_a_deadlock_that_they_meet(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_TIMES", 1)
    with pytest.raises(DBAPIError) as caught:
        meet(engine)
    assert caught.value.orig is not None
    assert "deadlock detected" in str(caught.value.orig)
