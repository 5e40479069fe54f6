"""Tasks that no worker can run: of which computations they are, and what they ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import islice

from distributed.metrics import monotonic
from distributed.scheduler import TaskState

from daskscope.observe.tasks.computation import Computation
from daskscope.observe.tasks.group_index import GroupIndex
from daskscope.protocol import MAX_NAME

#: Seconds between two looks, and the most that one stands for: the event loop may be held up.
PAUSE, MAX_STEP = 0.5, 5.0
#: Tasks that are looked at; what they ask for that is kept apart of a computation, and of a task.
MAX_TASKS = 100
MAX_ASKS = 10
MAX_RESTRICTIONS = 5


class Unrunnable:
    """Looks now and then at what Dask calls ``unrunnable``, the ``members`` of computations."""

    def __init__(self, members: GroupIndex) -> None:
        self._members = members
        self._looked_at = monotonic()
        #: Computations that have had such tasks since they were last taken.
        self.seen: set[Computation] = set()

    def look(self, unrunnable: Iterable[TaskState]) -> None:
        """Look at them, unless the last look was a moment ago. To be called at each tick."""
        now = monotonic()
        step = now - self._looked_at
        if step < PAUSE:
            return
        self._looked_at = now
        found: dict[Computation, Counter[str]] = {}
        for task in islice(unrunnable, MAX_TASKS):
            group = self._members.group_of(task)
            if group is not None:
                found.setdefault(group.computation, Counter())[asked_for(task)] += 1
        for computation, asks in found.items():
            computation.unrunnable_seconds += min(step, MAX_STEP)
            for words, count in asks.items():
                most = computation.asks
                if words in most or len(most) < MAX_ASKS:
                    most[words] = max(most.get(words, 0), count)
            self.seen.add(computation)


def asked_for(task: TaskState) -> str:
    """Return in words what a worker must have or be for ``task``."""
    resources = islice((task.resource_restrictions or {}).items(), MAX_RESTRICTIONS + 1)
    asked = [f"{name}={amount:g}" for name, amount in resources]
    asked += _one_of("worker", task.worker_restrictions or ())
    asked += _one_of("host", task.host_restrictions or ())
    if len(asked) > MAX_RESTRICTIONS:
        asked[MAX_RESTRICTIONS:] = [f"{len(asked) - MAX_RESTRICTIONS} more"]
    return ", ".join(asked)[:MAX_NAME] or "any worker"


def _one_of(kind: str, names: Collection[str]) -> list[str]:
    # There may be thousands, of each of very many tasks: then nobody reads them either.
    if len(names) > MAX_RESTRICTIONS:
        return [f"one of {len(names):,} {kind}s"]
    return sorted(f"{kind} {name}" for name in names)
