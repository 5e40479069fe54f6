"""Periodic tasks in threads: for each workspace, or in one process at a time.

Several processes may share a database. A task whose rounds are long has a lease, so that one
process at a time does a round. The lease is a row: a process that dies with it is replaced once it
has expired. Tasks without one do rounds in every process: what they write, they check in the
transaction that writes it, so that a second process changes nothing.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sqlalchemy import Engine, insert, or_, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from daskscope_service.db.engine import writing
from daskscope_service.db.schema import lease as table

#: Seconds between two looks at whether a round is due that another process may have done.
_LOOK_EVERY = 60.0

#: Seconds until another process may take a lease that is not renewed.
_LEASE_SECONDS = 120.0

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """Someone asked to stop. What was done stays; the rest is for the next round."""


class SomeFailed(Exception):
    """Work failed for some workspaces, and was done for the others."""


def in_each(
    workspaces: Iterable[str],
    work: Callable[[str], int],
    *,
    ends_all: type[Exception] | tuple[type[Exception], ...] = (),
) -> int:
    """Do ``work`` for each workspace and return the sum of what it returns.

    One for which it fails keeps it from no other, unless by one of ``ends_all``.

    Raises
    ------
    SomeFailed
        Afterwards, with the first error as its cause.
    """
    done, failed = 0, list[tuple[str, Exception]]()
    for name in workspaces:
        try:
            done += work(name)
        except ends_all:
            raise
        except Exception as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise  # the database is away, for all of them
            failed.append((name, error))
    if failed:
        first, cause = failed[0]
        others = f" (and {len(failed) - 1} others)" if len(failed) > 1 else ""
        raise SomeFailed(f"workspace {first}{others}: {_why(cause)}") from cause
    return done


Row = TypeVar("Row")


def together_or_alone(
    rows: Sequence[Row], work: Callable[[Sequence[Row]], None], failed: Callable[[Row, str], None]
) -> None:
    """Do ``work`` for all ``rows`` together; where that fails for each alone, and call ``failed``
    with those for which it does, and why: what one cluster sent keeps back nothing of another's.
    """
    try:
        work(rows)
    except Exception as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise  # the database is away
        if len(rows) == 1:
            failed(rows[0], _why(error))
            return
        for row in rows:
            together_or_alone([row], work, failed)


def _why(error: Exception) -> str:
    return str(getattr(error, "orig", None) or f"{type(error).__name__}: {error}")


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
                        name=self._name,
                        holder=self._holder,
                        expires_at=time.time() + _LEASE_SECONDS,
                    )
                )
        except IntegrityError:
            return False  # it is there, and another's
        self._renewed = time.monotonic()
        return True

    def renew(self) -> bool:
        """Hold on, while the work goes on: call it often. False: another has it meanwhile."""
        if time.monotonic() - self._renewed < _LEASE_SECONDS / 4:
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

    def forget(self) -> None:
        """Have the work done as if it had never been."""
        with writing(self._engine) as connection:
            connection.execute(update(table).where(table.c.name == self._name).values(done_at=None))

    def _hold(self, condition: object) -> bool:
        with writing(self._engine) as connection:
            result = connection.execute(
                update(table)
                .where(table.c.name == self._name, condition)  # type: ignore[arg-type]
                .values(holder=self._holder, expires_at=time.time() + _LEASE_SECONDS)
            )
        if result.rowcount:
            self._renewed = time.monotonic()
        return bool(result.rowcount)


class PeriodicTask:
    """Calls ``work`` every ``interval`` seconds, never if that is 0.

    Parameters
    ----------
    first_after
        Seconds from the start to the first round, if not an interval.
    lease
        What a process must hold for a round. A round is due an interval after the last one that any
        process finished: ``work`` finishes it by returning, and renews the lease in the meantime.
    ended
        Set when the thread is to end, for work that looks at it.
    failed
        Gets what a round raises, except :class:`Stopped`. By default it is logged.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        interval: float,
        *,
        first_after: float | None = None,
        lease: Lease | None = None,
        ended: threading.Event | None = None,
        failed: Callable[[Exception], object] | None = None,
    ) -> None:
        self._name = name
        self._work = work
        self._interval = interval
        self._first_after = interval if first_after is None else first_after
        self._lease = lease
        self._ended = ended or threading.Event()
        self._failed = failed or self._log
        self._thread = threading.Thread(target=self._run, name=f"daskscope-{name}", daemon=True)
        if interval > 0:
            self._thread.start()

    def close(self) -> None:
        """End the thread, once the round under way is done or has stopped."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = self._first_after
        while not self._ended.wait(pause):
            pause = self._interval if self._lease is None else min(self._interval, _LOOK_EVERY)
            try:
                self._round()
            except Stopped:
                continue
            except Exception as error:  # a database that is away for a while must not end it
                self._failed(error)

    def _round(self) -> None:
        if self._lease is None:
            self._work()
            return
        done_at = self._lease.done_at()
        if done_at is not None and time.time() < done_at + self._interval:
            return
        if not self._lease.take():
            return
        done = False
        try:
            self._work()
            done = True
        finally:
            self._lease.give_back(done=done)

    def _log(self, error: Exception) -> None:
        logger.error("%s: a round failed: %s", self._name, getattr(error, "orig", error))
