"""Work that one process at a time does, of all that share a database: it holds a lease.

The lease is a row. A process that dies holding it is replaced once it has expired.
"""

from __future__ import annotations

import secrets
import time

from sqlalchemy import Engine, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from daskscope_service.db.engine import writing
from daskscope_service.db.schema import lease as table

#: Seconds until a lease that is not renewed may be taken by another.
_SECONDS = 120.0


class Lease:
    """One holder's hold on the work ``name``. Clocks of the processes may differ by a minute."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._holder = secrets.token_hex(8)
        self._renewed = 0.0

    def done_at(self) -> float | None:
        """Return when the work was last done, by any process, in seconds since the epoch."""
        with self._engine.connect() as connection:
            return connection.execute(
                select(table.c.done_at).where(table.c.name == self._name)
            ).scalar()

    def take(self) -> bool:
        """Take the lease, unless another holds it; return whether it was taken."""
        if self._hold(or_(table.c.holder.is_(None), table.c.expires_at < time.time())):
            return True
        try:
            with writing(self._engine) as connection:
                connection.execute(
                    insert(table).values(
                        name=self._name, holder=self._holder, expires_at=time.time() + _SECONDS
                    )
                )
        except IntegrityError:
            return False  # it is there, and another's
        self._renewed = time.monotonic()
        return True

    def renew(self) -> bool:
        """Hold on, while the work goes on: call it often. False: another has it meanwhile."""
        if time.monotonic() - self._renewed < _SECONDS / 4:
            return True
        return self._hold(table.c.holder == self._holder)

    def give_back(self, *, done: bool) -> None:
        """Let others take it. ``done``: the work is finished, and not only ended."""
        values = {"done_at": time.time()} if done else {}
        with writing(self._engine) as connection:
            connection.execute(
                update(table)
                .where(table.c.name == self._name, table.c.holder == self._holder)
                .values(holder=None, **values)
            )

    def _hold(self, condition: object) -> bool:
        with writing(self._engine) as connection:
            found = connection.execute(
                update(table)
                .where(table.c.name == self._name, condition)  # type: ignore[arg-type]
                .values(holder=self._holder, expires_at=time.time() + _SECONDS)
            )
        if found.rowcount:
            self._renewed = time.monotonic()
        return bool(found.rowcount)
