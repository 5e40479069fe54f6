"""Removes code that no computation refers to any more.

A heartbeat may refer to code by its hash at any time, and the service does not ask a cluster for
code that it has. Therefore unused code is first marked. From then on, the service asks clusters for
it again, and removes the mark when one sends it. Then all computations are read once more, to find
those that arrived before the mark.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Engine, bindparam, delete, tuple_, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import code, computation
from daskscope_service.retention.throttle import Removed, Throttle

#: Rows of computations that are read together.
_AT_ONCE = 16

_ONE = (code.c.workspace == bindparam("of"), code.c.hash == bindparam("one"))


def remove_unused_code(engine: Engine, workspace: str, pace: Throttle) -> Iterator[Removed]:
    """Remove the code of ``workspace`` that none of its computations refers to."""
    with engine.connect() as connection:
        rows = connection.execute(select_in(workspace, code, code.c.hash, code.c.unused_since))
        marks: dict[str, float | None] = {row.hash: row.unused_since for row in rows}
    unused = set(marks)
    yield from _without_named(engine, workspace, unused, pace)
    used_again = [hash for hash, since in marks.items() if since and hash not in unused]
    yield from _mark(engine, workspace, used_again, None, pace)
    yield from _mark(engine, workspace, unused, time.time(), pace)
    yield from _without_named(engine, workspace, unused, pace)
    gone = delete(code).where(*_ONE, code.c.unused_since.is_not(None))
    for some in _parts(unused, pace):
        with writing(engine) as connection:
            removed = connection.execute(gone, [{"of": workspace, "one": hash} for hash in some])
        yield Removed(code.name, removed.rowcount)


def _without_named(
    engine: Engine, workspace: str, unused: set[str], pace: Throttle
) -> Iterator[Removed]:
    # Removes from ``unused`` the hashes that computations refer to. It reads only, but in steps,
    # too.
    key = (computation.c.cluster, computation.c.id)
    last: tuple[Any, ...] | None = None
    while unused:
        query = select_in(workspace, computation, *key, computation.c.frames)
        if last is not None:
            query = query.where(tuple_(*key) > last)
        with engine.connect() as connection:
            # Frames may be large: a few rows are in memory at a time.
            some = query.order_by(*key).limit(pace.rows).execution_options(yield_per=_AT_ONCE)
            read = None
            for cluster, id, frames in connection.execute(some):
                unused.difference_update(frame.get("code") for frame in frames or ())
                read = cluster, id
        if read is None:
            return
        last = read
        yield Removed(code.name, 0)


def _mark(
    engine: Engine, workspace: str, hashes: Iterable[str], since: float | None, pace: Throttle
) -> Iterator[Removed]:
    change = update(code).where(*_ONE).values(unused_since=bindparam("since"))
    for some in _parts(hashes, pace):
        with writing(engine) as connection:
            connection.execute(
                change, [{"of": workspace, "one": hash, "since": since} for hash in some]
            )
        yield Removed(code.name, 0)


def _parts(hashes: Iterable[str], pace: Throttle) -> Iterator[list[str]]:
    rest = sorted(hashes)
    while rest:
        size = pace.rows
        yield rest[:size]
        rest = rest[size:]
