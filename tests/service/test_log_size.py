"""SQLite's log does not grow without end while someone always reads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from daskscope_service.db import log_size
from daskscope_service.db.engine import writing

pytestmark = pytest.mark.sqlite

#: What SQLite lets come together before it empties its log by itself.
USUAL = 64 * 2**20


def test_the_log_is_emptied_though_readers_relieve_each_other(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_size, "MOST_BYTES", USUAL)
    log = Path(f"{engine.url.database}-wal")
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE large (number INTEGER PRIMARY KEY, what BLOB)"))

    def write() -> None:
        with writing(engine) as connection:
            connection.execute(
                text("INSERT OR REPLACE INTO large VALUES (:number, randomblob(1000000))"),
                [{"number": number} for number in range(10)],
            )

    def read(reads: threading.Event, leaves: threading.Event) -> None:
        with engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM large")).scalar()
            reads.set()
            leaves.wait()

    readers: list[tuple[threading.Thread, threading.Event]] = []

    def relieve() -> None:
        # The next one is there before the last one goes.
        reads, leaves = threading.Event(), threading.Event()
        readers.append((threading.Thread(target=read, args=[reads, leaves]), leaves))
        readers[-1][0].start()
        reads.wait()
        if len(readers) > 1:
            leave(*readers[-2])

    try:
        for _ in range(20):
            write()
            relieve()
        assert log.stat().st_size > 2 * USUAL
        emptied = threading.Thread(target=log_size.empty_log, args=[engine])
        emptied.start()
        while emptied.is_alive():
            relieve()
            emptied.join(0.3)
        assert log.stat().st_size <= USUAL
    finally:
        leave(*readers[-1])


def leave(reader: threading.Thread, leaves: threading.Event) -> None:
    leaves.set()
    reader.join()
