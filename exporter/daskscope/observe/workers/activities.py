"""What the threads of all workers did, by prefix and activity: rows that add up to their time.

All time is that of a thread: one of as many as a worker has, from when it came until it left.

- Rows of prefixes hold the time of tasks in threads, as the workers measured it (see
  ``metrics``), and as ``running`` that of tasks which have not ended: of these Dask reports
  the seconds alone.
- The row without a prefix holds the rest: ``idle`` while no task was assigned to the thread, and
  ``paused`` while its worker took none for lack of memory. A thread whose task had not begun
  waited: as far as its worker was seen to fetch data it is ``transfer``, the rest is
  ``unattributed``, such as messages that are under way, and what a worker did since its last beat
  before it was lost.

Fetching itself, serving others and spilling go on beside the threads, and are in no row. Nor is
what a task did after it seceded (``worker_client``): it has left its thread to others. A task that
was cancelled may stay in its thread for a while: that is its time, not idle.

This is the only place that says how many thread-seconds were idle. All that shows idle time, or
what it costs, goes by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from daskscope import protocol
from daskscope.observe.naming import Naming
from daskscope.observe.workers.metrics import Measured
from daskscope.observe.workers.workers import WorkerTotals


@dataclass(frozen=True, slots=True)
class Times:
    """The threads' time so far: all ``rows``, those that ``changed`` since the last call, and the
    sums for ``protocol.Status.worker_seconds``: with a task, idle, and paused.
    """

    rows: tuple[protocol.Activity, ...]
    changed: tuple[protocol.Activity, ...]
    by_state: dict[str, float]


class Activities:
    """Makes the rows, and remembers which ones changed."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._rows: dict[str, protocol.Activity] = {}
        self._busy = 0.0
        self._idle = 0.0

    def times(self, workers: WorkerTotals, measured: Measured) -> Times:
        """Return what the threads did until now."""
        by_prefix = measured.seconds
        for prefix, took in workers.running.items():
            row = by_prefix.setdefault(self._naming.known(prefix), {})
            row["running"] = row.get("running", 0.0) + took
        in_threads = sum(sum(seconds.values()) for seconds in by_prefix.values())
        paused = workers.paused
        left = max(workers.capacity - paused - in_threads, 0.0)
        # Both only ever grow, though a worker may report later that a thread was not free.
        idle = self._idle = max(self._idle, min(workers.unassigned, left))
        busy = self._busy = max(self._busy, workers.capacity - paused - idle)
        left = max(left - idle, 0.0)
        transfer = min(measured.gathered, left)
        by_prefix[""] = {
            "idle": idle,
            "paused": paused,
            "transfer": transfer,
            "unattributed": left - transfer,
        }
        for prefix, last in self._rows.items():
            if "running" in last.seconds:
                # Whoever reads it as a series must see that it has ended.
                by_prefix.setdefault(prefix, {}).setdefault("running", 0.0)
        changed = []
        for prefix, seconds in by_prefix.items():
            known = self._rows.get(prefix)
            if known is None or known.seconds != seconds:
                self._rows[prefix] = protocol.Activity(prefix, seconds)
                changed.append(self._rows[prefix])
        return Times(
            tuple(self._rows.values()),
            tuple(changed),
            {"busy": busy, "idle": idle, "paused": paused},
        )
