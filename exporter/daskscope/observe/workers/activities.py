"""The time of all workers' threads by prefix and activity, in rows that add up to all of it.

All times are thread-seconds. Each worker has as many threads as Dask reports, from its arrival
until it leaves.

- The row of a prefix holds the time of its tasks in threads, as the workers measured it (see
  ``metrics``). ``running`` is the time of tasks that have not ended, for which Dask reports no
  details; ``lost`` that of tasks whose worker left before they ended. Workers report with their
  heartbeats, and send none when they close. So at the end ``unsplit`` is the time of runs that
  ended after that, as the scheduler got to know it with their results; and ``cancelled`` has that
  of cancelled tasks that went on until then.
- The row without a prefix holds the rest: ``idle`` while no task was assigned to the thread, and
  ``paused`` while its worker accepted no task for lack of memory. The remaining time is that of
  threads whose task had not begun. Up to the time that workers spent fetching data it counts as
  ``transfer``. The rest is ``unattributed``, such as messages under way and, until the end, what a
  worker that left had not reported.

Fetching, serving and spilling happen outside the threads, and are in no row. Neither is the time of
a task after it seceded (``worker_client``), when it has left its thread to others. A cancelled task
may stay in its thread for a while: that is the task's time, not idle time.

Only this module computes idle thread-seconds. Everything that shows idle time, or its cost, uses
its result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from daskscope import protocol
from daskscope.observe.naming import Naming
from daskscope.observe.workers.metrics import Measured
from daskscope.observe.workers.workers import WorkerTotals


@dataclass(frozen=True, slots=True)
class Times:
    """The threads' time so far: all ``rows``, the rows that ``changed`` since the last call, and
    the sums for ``protocol.Status.worker_seconds`` (busy, idle, paused).
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

    def times(
        self,
        workers: WorkerTotals,
        measured: Measured,
        computed: Mapping[str, float] | None = None,
    ) -> Times:
        """Return the threads' time until now.

        ``computed`` are the compute seconds of all runs that have ended, by their names, if this is
        the end: None while workers may still report them.
        """
        by_prefix = measured.seconds
        for activity, seconds_of in (("running", workers.running), ("lost", workers.lost)):
            for prefix, took in seconds_of.items():
                row = by_prefix.setdefault(self._naming.known(prefix), {})
                row[activity] = row.get(activity, 0.0) + took
        in_threads = sum(sum(seconds.values()) for seconds in by_prefix.values())
        paused = workers.paused
        left = max(workers.capacity - paused - in_threads, 0.0)
        # Both must never decrease, although a worker may report later that a thread was not free.
        idle = self._idle = max(self._idle, min(workers.unassigned, left))
        busy = self._busy = max(self._busy, workers.capacity - paused - idle)
        left = max(left - idle, 0.0)
        if computed is not None:
            unmeasured = self._unmeasured(computed, workers, measured)
            whole = sum(unmeasured.values())
            for (name, activity), took in unmeasured.items():
                row = by_prefix.setdefault(name, {})
                # Not more than the threads had.
                row[activity] = row.get(activity, 0.0) + took * min(left / whole, 1.0)
            left = max(left - whole, 0.0)
        transfer = min(measured.gathered, left)
        by_prefix[""] = {
            "idle": idle,
            "paused": paused,
            "transfer": transfer,
            "unattributed": left - transfer,
        }
        for prefix, last in self._rows.items():
            if "running" in last.seconds:
                # Send a 0, so that a time series of it shows that the tasks have ended.
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

    def _unmeasured(
        self, computed: Mapping[str, float], workers: WorkerTotals, measured: Measured
    ) -> dict[tuple[str, str], float]:
        """Return by name and activity the seconds of ended runs that no worker has reported."""
        alike, alike_of = self._naming.alike, self._naming.alike_of
        seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        for name, took in computed.items():
            seconds[alike(name), "unsplit"] += took
        for name, took in measured.computing.items():
            seconds[alike(name), "unsplit"] -= took
        for prefix, took in (*workers.elsewhere.items(), *workers.ended.items()):
            seconds[alike_of(prefix), "unsplit"] -= took
        for prefix, took in workers.given_up.items():
            seconds[alike_of(prefix), "cancelled"] += took
        for name, row in measured.seconds.items():
            seconds[alike(name), "cancelled"] -= row.get("cancelled", 0.0)
        return {key: took for key, took in seconds.items() if took > 0.0}
