"""The ids of series that a process caches, so that it writes to no series that was removed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine

from daskscope_service.db import points, schema, series_generation
from daskscope_service.db.statements import Upsert
from daskscope_service.ingest.writer import Outdated

#: About how many bytes the cache may take: 200,000 series with attributes of 100 bytes. A full
#: cache is emptied and filled again, which costs only time.
_MOST_BYTES = 64 << 20

#: About how many bytes Python needs for a series beside its key, for each further series with the
#: same key, and for a family beside its names.
_SERIES_BYTES, _ID_BYTES, _FAMILY_BYTES = 200, 40, 500

#: Seconds for which a cache is used at least. Filling a new one is a lot of work; checking with
#: each commit whether the ids still exist is little.
_SECONDS = 60.0

#: Ids by the bytes of a point that identify its series, as sent: cheap to make and to look up.
Ids = dict[bytes, tuple[int, ...]]

#: Workspace, cluster, metric, and whether it is a histogram.
Family = tuple[str, str, str, bool]


class SeriesMemory:
    """The series that a process caches, until any process removes some.

    ``points`` writes points with these ids, or raises Outdated. ``known`` has the ids by family.
    """

    def __init__(self, engine: Engine) -> None:
        with engine.connect() as connection:
            self.points = _Points(engine, series_generation.current(connection))
        self.known: dict[Family, Ids] = {}
        self._bytes = 0
        self._made = time.monotonic()

    @property
    def spent(self) -> bool:
        """Whether a new cache should replace this one, because series were removed."""
        return self.points.generation_over and time.monotonic() - self._made > _SECONDS

    def remember(self, family: Family, key: bytes, ids: tuple[int, ...]) -> None:
        """Cache the ids of series that are stored."""
        if self._bytes > _MOST_BYTES:
            self.known.clear()
            self._bytes = 0
        of_family = self.known.get(family)
        if of_family is None:
            of_family = self.known.setdefault(family, {})
            self._bytes += _FAMILY_BYTES + sum(map(len, family[:3]))
        of_family[key] = ids
        self._bytes += _SERIES_BYTES + len(key) + _ID_BYTES * len(ids)


class _Points(Upsert):
    def __init__(self, engine: Engine, of: int) -> None:
        super().__init__(engine, points.written_to(engine), replace=["value"])
        self.table = schema.point  # the name under which rows are counted, on SQLite too
        self._moving = points.Moving(engine)
        self._generation = of
        self.generation_over = False

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write ``rows``. Raises Outdated if one is of a series that was removed."""
        if rows and series_generation.hold(connection) != self._generation:
            self.generation_over = True
            if not series_generation.all_there(connection, {row[0] for row in rows}):
                raise Outdated
        super().run(connection, rows)
        self._moving.after(connection, len(rows))
