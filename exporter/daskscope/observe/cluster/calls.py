"""Calls of clients and workers to the scheduler that are not tasks."""

from __future__ import annotations

from typing import Any

from distributed import Client
from distributed.scheduler import Scheduler, heartbeat_interval

from daskscope.worker_process import LeftToRun, Transfers, begun_beside

#: Calls of clients whose duration has no bound: ``client.run``, ``client.run_on_scheduler``, moving
#: data, and calls that the scheduler passes on to a worker, such as methods of actors.
CALLS = frozenset(
    ("broadcast", "run_function", "gather", "scatter", "rebalance", "replicate", "proxy")
)

#: Operations by which one part of a program waits for another: Dask's ``Event``, ``Queue``,
#: ``Variable``, ``Lock``, ``Semaphore`` and ``MultiLock``.
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

#: Operations whose connections stay open while a client, a worker, a nanny or a progress bar is
#: connected. Nobody waits for their answers.
STREAMS = frozenset(
    ("connection_stream", "register-client", "register-worker", "register_nanny", "feed",
     "subscribe_worker_status")
)  # fmt: skip

#: The operation by which a client asks for the list of workers: regularly (:func:`asked_every`)
#: and, in ``client.wait_for_workers``, up to ten times a second.
WHO_IS_THERE = "identity"

#: Operations that clients, workers, nannies and cluster managers call by themselves while they are
#: connected. Any other operation counts as work, however short it is; so do operations that a later
#: Dask or another package adds.
PASSIVE = STREAMS | {
    WHO_IS_THERE, "unregister", "heartbeat_worker", "add_keys", "check_idle", "terminate",
    "adaptive_target", "workers_to_close", "retire_workers", "get_metadata", "set_metadata",
    "log_event",  # called by nannies
    "close",  # a connection that was opened for one request
}  # fmt: skip

#: The operation of the connection over which a client sends its graphs and their data.
OF_CLIENT = "register-client"

#: Seconds after which any other operation counts as one that somebody waits for. Most operations,
#: such as workers' heartbeats, end sooner.
LASTING = 1.0

#: The least requests per second of a client that waits for workers, and the seconds over which they
#: are counted.
ASKED_BY_WAITING, ASKED_OVER = 1.5, 2.0
#: Requests beyond the regular ones that are tolerated, because a program may ask by itself, too.
ASKED_MORE = 10


class Calls:
    """Watches the calls in progress. Not thread-safe.

    ``in_progress`` is the number of :data:`CALLS` in progress at the last look. ``lasting`` names
    the other operations that had been in progress for at least :data:`LASTING` seconds.
    ``transfers`` is the number of connections on which a large message was on its way.
    ``locked`` is whether a ``Lock``, ``Semaphore`` or ``MultiLock`` is held.
    ``waits_for_workers`` is whether a client waits for workers. ``ours`` is the number of
    daskscope's own calls in progress, which are not counted.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # By connection: the other operations in progress at the last look, and since when.
        self._others: dict[Any, tuple[str, float]] = {}
        self._left_to_run = LeftToRun()
        self._transfers = Transfers()
        self.transfers = 0
        self.ours = 0
        self.in_progress = 0
        self.locked = False
        self.waits_for_workers = False
        self._asked = self._asked_at = 0.0
        # Requests of late beyond the regular ones.
        self._asked_more = 0.0
        self.lasting: tuple[str, ...] = ()

    def look(self, now: float) -> None:
        """Update what is in progress; ``now`` is the time of a monotonic clock."""
        before, others, count, clients = self._others, {}, 0, []
        # Dask stores the operation in progress of each connection.
        for connection, operation in self._scheduler._comms.items():
            if operation is None or operation == OF_CLIENT:
                clients.append(connection)
                continue
            if operation in STREAMS:
                continue
            # Dask does not end an operation when the process that called it has gone. A call to
            # others is work until it ends, but a wait for an Event that nobody sets never ends.
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
        self.locked = self._is_locked()
        if now - self._asked_at >= ASKED_OVER:
            self._look_at_waiting(now)

    def _look_at_waiting(self, now: float) -> None:
        asked, clients = self._asked_who_is_there(), len(self._scheduler.clients)
        # Requests before the first look belong to the time before it.
        count = asked - self._asked if self._asked_at else 0
        seconds = now - self._asked_at
        self._asked, self._asked_at = asked, now
        waiting = ASKED_BY_WAITING * seconds
        # All clients may ask in the same moment, so one more request of each is tolerated.
        enough = clients + ASKED_MORE
        more = self._asked_more + count - clients * seconds / asked_every(clients) - waiting
        # A client that waits asks more often than that.
        more = 0.0 if count <= waiting else max(more, 0.0)
        self._asked_more = min(more, 2 * enough)
        self.waits_for_workers = self._asked_more > enough

    def _is_locked(self) -> bool:
        # Holding one takes no call: a Semaphore, which a Lock is, is refreshed every few seconds.
        known = self._scheduler.extensions
        leases = getattr(known.get("semaphores"), "leases", {})
        return any(leases.values()) or bool(getattr(known.get("multi_locks"), "requests", None))

    def begun(self) -> int:
        """Return how many operations other than :data:`PASSIVE` have begun, also short ones."""
        return begun_beside(self._scheduler, PASSIVE)

    def _asked_who_is_there(self) -> float:
        counts: Any = self._scheduler.counters["op"].components
        return float(sum(count.get(WHO_IS_THERE, 0) for count in counts))


def asked_every(clients: int) -> float:
    """Return the seconds between two regular requests of a client, of ``clients`` in all."""
    # Since Dask 2025.4 the scheduler sets the interval of clients, which grows with their number.
    adjusts = hasattr(Client, "_adjust_heartbeat_intervals")
    return 10 * heartbeat_interval(clients) if adjusts else 2.0
