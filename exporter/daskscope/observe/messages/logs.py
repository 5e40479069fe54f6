"""Log records of the scheduler and the workers, with the computation and task that they belong to.

In the scheduler's process, records count as the cluster's if they are logged in the thread of the
scheduler's event loop. With a ``LocalCluster``, these are the scheduler's and the nannies', not
those of the user's script, of other clusters or of our threads in the same process. An asynchronous
``LocalCluster`` shares its thread with the script, so only Dask's own loggers count.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dask.typing import Key
from distributed.scheduler import Scheduler, TaskState

from daskscope import cutting, record_text, worker_logs
from daskscope.config import Settings
from daskscope.containment import Contained, guarded
from daskscope.observe.cluster.idle import manager_of
from daskscope.observe.naming import Naming, without_key
from daskscope.record_text import Described, of_framework, shortened
from daskscope.sent_code import put_on_workers, sent, texts_of
from daskscope.worker_logs import OP, Records, tap

_TEXTS = texts_of(cutting, record_text, worker_logs)

#: The name of the worker plugin.
NAME = "daskscope-logs"

#: Records that are stored between two snapshots. Further records are dropped and counted.
MAX_RECORDS = 1_000
#: Characters of a line of a worker's log.
MAX_LINE = 500


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A log record. ``level`` is Python's. ``worker`` is None for the scheduler's records.
    ``exception`` and ``traceback`` are None if there is none, or if the settings forbid them.
    """

    at: float
    level: int
    logger: str
    text: str
    exception_type: str | None
    exception: str | None
    traceback: str | None
    worker: str | None = None
    computation: str | None = None
    prefix: str | None = None


class Logs:
    """The records since the last snapshot.

    ``computation_of`` returns the id of a task's computation. ``worker_logged`` is called with a
    worker's address and each line that it logged.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        computation_of: Callable[[TaskState], str | None],
        worker_logged: Callable[[str, str], None],
        naming: Naming,
        drops: Counter[str],
    ) -> None:
        self._scheduler = scheduler
        self._computation_of = computation_of
        self._worker_logged = worker_logged
        self._naming = naming
        self._drops = drops
        self._records: list[LogRecord] = []

    def of_worker(self, worker: str, records: Iterable[tuple[Described, Any]]) -> None:
        """Store a worker's records, each with the key of the task that logged it, if any."""
        for described, key in records:
            if not guarded(self._drops, False, self._of_task, described, worker, key):
                self.dropped(1)

    def _of_task(self, described: Described, worker: str, key: Key | None) -> bool:
        """Store a record, with computation and prefix of the task with that key. Return True."""
        computation = prefix = None
        if key is not None:
            described = _without_key(described, key)
            task = self._scheduler.tasks.get(key)
            if task is not None:
                computation, prefix = self._computation_of(task), self._naming.prefix(task)
        self._add(described, worker, computation, prefix)
        return True

    def of_scheduler(self, described: Described) -> None:
        """Store a record of the scheduler."""
        self._add(described, None)

    def dropped(self, count: int) -> None:
        """Count records that were logged and not sent."""
        if count:
            self._drops["log record"] += count

    def take(self) -> tuple[LogRecord, ...]:
        """Return the records since the last call."""
        records, self._records = self._records, []
        return tuple(records)

    def _add(
        self,
        described: Described,
        worker: str | None,
        computation: str | None = None,
        prefix: str | None = None,
    ) -> None:
        if worker is not None:
            self._worker_logged(worker, _line(described))
        if len(self._records) >= MAX_RECORDS:
            self.dropped(1)
        else:
            self._records.append(LogRecord(*described, worker, computation, prefix))


def watch_logs(
    scheduler: Scheduler, logs: Logs, settings: Settings, drops: Counter[str]
) -> Callable[[], None]:
    """Pass further records, here and on all workers, to ``logs``. Return a function to stop it."""
    contained = Contained(drops)
    level, exceptions = settings.logs_level, settings.exceptions_transmit
    loop = threading.get_ident()
    in_main_thread = threading.current_thread() is threading.main_thread()
    records = Records(level, exceptions)

    def is_the_schedulers(record: logging.LogRecord) -> bool:
        if threading.get_ident() != loop:
            return False
        # An asynchronous program with a LocalCluster runs in the thread of the scheduler's loop.
        return of_framework(record.name) or not (in_main_thread and manager_of(scheduler))

    def take(record: logging.LogRecord) -> None:
        if records.wants(record) and is_the_schedulers(record):
            described = records.describe(record)
            if described is not None:
                logs.of_scheduler(described)
            logs.dropped(records.dropped())

    def receive(worker: str, records: Any = (), dropped: int = 0, **_: Any) -> None:
        # An exception here would end the worker's connection.
        with contained:
            logs.dropped(dropped)
            logs.of_worker(worker, records)

    def plugin() -> bytes:
        return sent(_TEXTS, "WorkerLogs", level=level, exceptions=exceptions)

    scheduler.stream_handlers[OP] = receive
    # Used by a worker whose stream has broken.
    scheduler.handlers[OP] = receive
    end = put_on_workers(scheduler, NAME, plugin, contained)
    untap = tap(contained.around(take, otherwise=None))

    def stop() -> None:
        untap()
        # Another plugin may have replaced the handler since.
        if scheduler.stream_handlers.get(OP) is receive:
            # A message without a handler would end the worker's connection.
            scheduler.stream_handlers[OP] = scheduler.handlers[OP] = _ignore
            end()

    return stop


def _ignore(**_: Any) -> None:
    """Ignore what workers still send."""


def _without_key(described: Described, key: Key) -> Described:
    # A task may log its own key.
    at, level, *texts = described
    logger, text, exception_type, exception, traceback = (
        None if text is None else without_key(text, key) for text in texts
    )
    return at, level, logger or "", text or "", exception_type, exception, traceback


def _line(described: Described) -> str:
    at, level, logger, text, exception_type, exception, _ = described
    when = time.strftime("%H:%M:%SZ", time.gmtime(at))
    line = f"{when} {logging.getLevelName(level)} {logger}: {text}"
    if exception_type is not None:
        line += f" ({exception_type}{': ' + exception if exception else ''})"
    return shortened(line, MAX_LINE)
