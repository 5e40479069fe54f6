"""Empties SQLite's write-ahead log when it has become large.

SQLite itself restarts the log only at a moment at which nobody reads. If one reader comes before
the other has gone, as with long downloads one after the other, there is no such moment, and the log
grows with each write: https://sqlite.org/wal.html, "Avoiding Excessively Large WAL Files".
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine

#: Bytes from which the log is emptied: twice its usual size (``wal_autocheckpoint``).
MOST_BYTES = 128 * 2**20

#: Seconds between two checks, and for how long writers wait for readers at most.
LOOK_SECONDS = 10.0
_WAIT_SECONDS = 5.0


def empty_log(engine: Engine) -> int:
    """Empty the log if it is large; return by how many bytes it shrank.

    This waits for present readers, but not for new ones: what they read is in the database by then.
    """
    if engine.dialect.name != "sqlite":
        return 0
    log = Path(f"{engine.url.database}-wal")
    before = log.stat().st_size if log.exists() else 0
    if before <= MOST_BYTES:
        return 0
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute("PRAGMA busy_timeout")
        [usual] = cursor.fetchone() or (0,)
        cursor.execute(f"PRAGMA busy_timeout = {round(_WAIT_SECONDS * 1000)}")
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {usual}")
    finally:
        connection.close()
    return before - log.stat().st_size
