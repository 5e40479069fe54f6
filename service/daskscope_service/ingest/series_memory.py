"""The ids of series that a process remembers, and what keeps it from writing to removed ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine

from daskscope_service.db import generation, points, schema
from daskscope_service.db.statements import Upsert
from daskscope_service.ingest.writer import Outdated

#: Series that are remembered. Beyond it, all are forgotten, and asked again: only speed depends on
#: it.
_MOST = 200_000

#: Seconds for which a memory is of use at least: to ask for all again is a lot of work, to look
#: whether ids are still there is a little with each commit.
_SECONDS = 60.0

#: By what of a point names its series, as sent: cheap to make and to look up.
Ids = dict[bytes, tuple[int, ...]]


class SeriesMemory:
    """What is remembered of series, until some are removed, by any process.

    ``points`` writes points of these ids, or raises Outdated. ``known`` has them by workspace,
    cluster, metric, and whether it is a histogram.
    """

    def __init__(self, engine: Engine) -> None:
        with engine.connect() as connection:
            self.points = _Points(engine, generation.current(connection))
        self.known: dict[tuple[str, str, str, bool], Ids] = {}
        self._series = 0
        self._made = time.monotonic()

    @property
    def spent(self) -> bool:
        """Whether another one should take its place: series were removed since it was begun."""
        return self.points.generation_over and time.monotonic() - self._made > _SECONDS

    def expect(self, series: int) -> None:
        """Make room for so many more."""
        if self._series > _MOST:
            self.known.clear()
            self._series = 0
        self._series += series


class _Points(Upsert):
    def __init__(self, engine: Engine, of: int) -> None:
        super().__init__(engine, points.written_to(engine), replace=["value"])
        self.table = schema.point  # as which they are counted, wherever they rest first
        self._moving = points.Moving(engine)
        self._generation = of
        self.generation_over = False

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write ``rows``. Raises Outdated if one is of a series that was removed."""
        if rows and generation.hold(connection) != self._generation:
            self.generation_over = True
            if not generation.all_there(connection, {row[0] for row in rows}):
                raise Outdated
        super().run(connection, rows)
        self._moving.after(connection, len(rows))
