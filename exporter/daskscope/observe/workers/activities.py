"""What the threads of all workers did, by prefix and activity: rows that add up to all their time.

All time is that of a thread: one of as many as a worker has, from when it came until it left.

- Rows of prefixes hold the time of tasks in threads, as the workers measured it (see
  ``metrics``), and as ``running`` that of tasks which have not ended: of these Dask reports
  the seconds alone.
- The row without a prefix holds the rest: ``idle`` while no task was assigned to the thread, and
  ``paused`` while its worker took none for lack of memory. A thread whose task had not begun
  waited: as far as its worker was seen to fetch data it is ``transfer``, the rest is
  ``unattributed``, such as messages that are under way, and what a worker did since its last beat
  before it was lost.

Fetching itself, serving others and spilling go on beside the threads, and are in no row. A task
that secedes (``worker_client``) runs in a thread beyond those that are counted: with many of them
the rows add up to more.
"""

from __future__ import annotations

from daskscope import protocol
from daskscope.observe.naming import Naming
from daskscope.observe.workers.metrics import Measured
from daskscope.observe.workers.workers import WorkerTotals


class Activities:
    """Makes the rows, and remembers which ones changed."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._rows: dict[str, protocol.Activity] = {}

    def rows(
        self, workers: WorkerTotals, measured: Measured
    ) -> tuple[tuple[protocol.Activity, ...], tuple[protocol.Activity, ...]]:
        """Return all rows, and those that changed since the last call."""
        by_prefix = measured.seconds
        for prefix, took in workers.running.items():
            row = by_prefix.setdefault(self._naming.known(prefix), {})
            row["running"] = row.get("running", 0.0) + took
        in_threads = sum(sum(seconds.values()) for seconds in by_prefix.values())
        paused = workers.seconds["paused"]
        left = max(workers.capacity - paused - in_threads, 0.0)
        idle = min(workers.unassigned, left)
        transfer = min(measured.gathered, left - idle)
        by_prefix[""] = {
            "idle": idle,
            "paused": paused,
            "transfer": transfer,
            "unattributed": left - idle - transfer,
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
        return tuple(self._rows.values()), tuple(changed)
