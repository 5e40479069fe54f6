"""A thread that does some work again and again, until it ends; and work for each workspace."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from sqlalchemy.exc import DBAPIError

logger = logging.getLogger(__name__)


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
        text = getattr(cause, "orig", None) or f"{type(cause).__name__}: {cause}"
        raise SomeFailed(f"workspace {first}{others}: {text}") from cause
    return done


class PeriodicTask:
    """Calls ``work`` every ``interval`` seconds, from one interval after the start on."""

    def __init__(self, name: str, work: Callable[[], object], interval: float) -> None:
        self._name = name
        self._work = work
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"daskscope-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, once the round under way is done."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self._work()
            except Exception as error:  # a database that is away for a while must not end it
                logger.error("%s: a round failed: %s", self._name, getattr(error, "orig", error))
