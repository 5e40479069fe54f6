"""Calls of clients and workers to the scheduler that are not tasks."""

from __future__ import annotations

from typing import Any

from distributed import Client
from distributed.scheduler import Scheduler, heartbeat_interval

from daskscope.worker_process import LeftToRun, Transfers, begun_beside

#: What a client may ask the scheduler for that takes as long as it takes: ``client.run``,
#: ``client.run_on_scheduler``, moving data, and what is passed on to a worker: methods of actors.
CALLS = frozenset(
    ("broadcast", "run_function", "gather", "scatter", "rebalance", "replicate", "proxy")
)

#: What a program uses to wait for another part of it: Dask's ``Event``, ``Queue``, ``Variable``,
#: ``Lock``, ``Semaphore`` and ``MultiLock``.
MEETINGS = frozenset(
    f"{kind}_{does}"
    for kind, how in (
        ("event", ("wait", "set", "clear")),
        ("queue", ("put", "get")),
        ("variable", ("set", "get")),
        ("semaphore", ("acquire", "release", "refresh_leases")),
        ("lock", ("acquire", "release")),
        ("multi_lock", ("acquire", "release")),
    )
    for does in how
)

#: Connections that are open for as long as a client, a worker or a manager is connected, or a
#: progress bar is shown: nobody waits there for an answer.
STREAMS = frozenset(
    ("connection_stream", "register-client", "register-worker", "register_nanny", "feed",
     "subscribe_worker_status")
)  # fmt: skip

#: How a client asks which workers there are: regularly (:func:`asked_every`) and, while it waits
#: for more of them (``client.wait_for_workers``), up to ten times a second.
WHO_IS_THERE = "identity"

#: What a scheduler is asked for although no program asks: by clients, workers, nannies, managers
#: and cluster managers' own tools, for as long as they are there. Any other operation is a sign of
#: work, however short; what a later Dask or another package adds is one as well.
PASSIVE = STREAMS | {
    WHO_IS_THERE, "unregister", "heartbeat_worker", "add_keys", "check_idle", "terminate",
    "adaptive_target", "workers_to_close", "retire_workers", "get_metadata", "set_metadata",
    "log_event",  # of nannies
    "close",  # a connection that was opened for one question
}  # fmt: skip

#: What a client's graphs come by, with all the data in them.
OF_CLIENT = "register-client"

#: Seconds that any other operation takes before it is something that somebody waits for: most are
#: answered at once, such as the worker's beats.
LASTING = 1.0

#: So often per second one asks that waits, at least; and so many seconds are between two looks.
ASKED_BY_WAITING, ASKED_OVER = 1.5, 2.0
#: So much more often than regularly they must have been asked: a program may ask for itself, too.
ASKED_MORE = 10


class Calls:
    """Watches them. Not thread-safe.

    ``in_progress`` is how many of :data:`CALLS` were in progress at the last look, and ``lasting``
    what other operations had been for long. ``transfers`` is on how many connections a large
    message was on its way. ``waits_for_workers`` says that a client does. ``ours`` are calls of
    daskscope's own that are under way, which do not count.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # Other operations that were in progress at the last look, and since when.
        self._others: dict[Any, tuple[str, float]] = {}
        self._left_to_run = LeftToRun()
        self._transfers = Transfers()
        self.transfers = 0
        self.ours = 0
        self.in_progress = 0
        self.waits_for_workers = False
        self._asked = self._asked_at = 0.0
        # How much more often than regularly, of late.
        self._asked_more = 0.0
        self.lasting: tuple[str, ...] = ()

    def look(self, now: float) -> None:
        """See what is in progress, ``now`` by a clock that does not jump."""
        before, others, count, clients = self._others, {}, 0, []
        # Dask notes for each connection what it is being used for.
        for connection, operation in self._scheduler._comms.items():
            if operation is None or operation == OF_CLIENT:
                clients.append(connection)
                continue
            if operation in STREAMS:
                continue
            # Dask goes on with what a process has asked for that is gone. What it has others do is
            # work to its end; but it waits for ever for an Event that nobody sets.
            if operation in MEETINGS and connection.closed():
                continue
            if operation in CALLS:
                count += 1
                continue
            known, since = before.get(connection, (None, now))
            others[connection] = (operation, since if known == operation else now)
        self.transfers = self._transfers.look(clients, now)
        count += self._left_to_run.count(self._scheduler)
        self._others, self.in_progress = others, max(count - self.ours, 0)
        self.lasting = tuple(name for name, since in others.values() if now - since >= LASTING)
        if now - self._asked_at >= ASKED_OVER:
            self._look_at_waiting(now)

    def _look_at_waiting(self, now: float) -> None:
        asked, clients = self._asked_who_is_there(), len(self._scheduler.clients)
        # What was asked before the first look is about the time before.
        count = asked - self._asked if self._asked_at else 0
        seconds = now - self._asked_at
        self._asked, self._asked_at = asked, now
        waiting = ASKED_BY_WAITING * seconds
        # All clients may ask in the same moment, so that it takes one more of each than regularly.
        enough = clients + ASKED_MORE
        more = self._asked_more + count - clients * seconds / asked_every(clients) - waiting
        # One that waits never asks so seldom.
        more = 0.0 if count <= waiting else max(more, 0.0)
        self._asked_more = min(more, 2 * enough)
        self.waits_for_workers = self._asked_more > enough

    def begun(self) -> int:
        """Return how many operations there were beside :data:`PASSIVE`, short ones too."""
        return begun_beside(self._scheduler, PASSIVE)

    def _asked_who_is_there(self) -> float:
        counts: Any = self._scheduler.counters["op"].components
        return float(sum(count.get(WHO_IS_THERE, 0) for count in counts))


def asked_every(clients: int) -> float:
    """Return how many seconds each of so many clients lets pass between two questions."""
    # From Dask 2025.4 on, the scheduler gives its clients longer intervals the more there are.
    adjusts = hasattr(Client, "_adjust_heartbeat_intervals")
    return 10 * heartbeat_interval(clients) if adjusts else 2.0
