"""Tasks that no worker can run: their computations, and what they require."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain, islice

from distributed.metrics import monotonic
from distributed.scheduler import Scheduler, TaskState

from daskscope.observe.tasks.computation import Computation
from daskscope.observe.tasks.group_index import GroupIndex
from daskscope.protocol import ANY_WORKER, MAX_NAME

#: Seconds between two looks, and the most seconds that a look adds: the event loop may be blocked.
PAUSE, MAX_STEP = 0.5, 5.0
#: Tasks that are looked at, requirements that a computation stores, and restrictions of a task that
#: are described.
MAX_TASKS = 100
MAX_ASKS = 10
MAX_RESTRICTIONS = 5


class Unrunnable:
    """Looks regularly at tasks that no worker can run. ``members`` finds their computations.

    They are Dask's ``unrunnable`` tasks and, without any worker, those that it keeps ``queued``.
    """

    def __init__(self, scheduler: Scheduler, members: GroupIndex) -> None:
        self._scheduler = scheduler
        self._members = members
        self._looked_at = monotonic()
        #: Computations that have had such tasks since this set was last taken.
        self.seen: set[Computation] = set()

    def look(self) -> None:
        """Add the time since the last look, if that is long enough ago. Call it at each tick."""
        now = monotonic()
        step = now - self._looked_at
        if step < PAUSE:
            return
        self._looked_at = now
        asked: dict[Computation, Counter[str]] = {}
        for task in islice(self._tasks(), MAX_TASKS):
            group = self._members.group_of(task)
            # Results that are lost after its end are no more of its time.
            if group is not None and not group.computation.over:
                asked.setdefault(group.computation, Counter())[asked_for(task)] += 1
        for computation, asks in asked.items():
            computation.unrunnable_seconds += min(step, MAX_STEP)
            for words, count in asks.items():
                most = computation.asks
                if words in most or len(most) < MAX_ASKS:
                    most[words] = max(most.get(words, 0), count)
            self.seen.add(computation)

    def _tasks(self) -> Iterable[TaskState]:
        scheduler = self._scheduler
        if scheduler.workers:
            return scheduler.unrunnable
        return chain(scheduler.unrunnable, scheduler.queued)


def asked_for(task: TaskState) -> str:
    """Describe the workers that may run ``task``."""
    resources = islice((task.resource_restrictions or {}).items(), MAX_RESTRICTIONS + 1)
    asked = [f"{name}={amount:g}" for name, amount in resources]
    asked += _one_of("worker", task.worker_restrictions or ())
    asked += _one_of("host", task.host_restrictions or ())
    if len(asked) > MAX_RESTRICTIONS:
        asked[MAX_RESTRICTIONS:] = [f"{len(asked) - MAX_RESTRICTIONS} more"]
    return ", ".join(asked)[:MAX_NAME] or ANY_WORKER


def _one_of(kind: str, names: Collection[str]) -> list[str]:
    # Each of many tasks may have thousands of names, which nobody would read.
    if len(names) > MAX_RESTRICTIONS:
        return [f"one of {len(names):,} {kind}s"]
    return sorted(f"{kind} {name}" for name in names)
