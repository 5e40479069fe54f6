"""How findings are made beside everything else that a service does."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import Engine, func, select

from daskscope_service.accounts import tokens
from daskscope_service.db import schema
from daskscope_service.findings import evaluator
from daskscope_service.findings.evaluator import Evaluator
from daskscope_service.ingest.heartbeat import BeatStore
from daskscope_service.ingest.quotas import Quotas
from daskscope_service.ingest.writer import Writer
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.settings import Settings
from daskscope_service.telemetry.embedded import EmbeddedSeries
from tests.patience import wait_until
from tests.service.beats import encode, make_beat, make_computation

pytestmark = pytest.mark.sqlite

#: More than are judged together, twice.
COMPUTATIONS = 60


def test_while_heartbeats_are_being_written_judging_pauses(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    instruments = ServiceMetrics()
    writer = Writer(engine, capacity=2, instruments=instruments)
    store = BeatStore(engine, writer, Quotas(engine, Settings(), instruments))
    token = tokens.id_of(tokens.create(engine, workspace="default", label="beats"))
    rows = tuple(make_computation(f"number-{n}") for n in range(COMPUTATIONS))
    store.keep(encode(make_beat(computations=rows)), "default", time.time(), token)

    def due() -> int:
        table = schema.computation
        query = select(func.count()).where(table.c.judge_at <= time.time())
        with engine.connect() as connection:
            return connection.execute(query).scalar_one()

    # For as long as it takes: as if each look had taken very long.
    monkeypatch.setattr(evaluator, "_PAUSE", 1e6)
    judging = Evaluator(engine, EmbeddedSeries(engine), 60.0, writer.is_busy)
    thread = threading.Thread(target=judging.round)
    try:
        with writer.place():
            thread.start()
            assert wait_until(lambda: due() < COMPUTATIONS)
            paused_at = due()
            assert paused_at > 0
            thread.join(4 * evaluator._LOOK_AGAIN)
            assert thread.is_alive()
            assert due() == paused_at
        thread.join()
        assert due() == 0
    finally:
        writer.close()
