"""A hook into Dask's own ticks of its event loop, some fifty a second.

Timers of our own would wake the loop more often, at the cost of dozens of tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from distributed.scheduler import Scheduler

from daskscope.containment import contain


class LoopTickHook:
    """Calls ``callbacks`` on the event loop at each of Dask's ticks, until :meth:`stop`.

    Dask schedules ticks by the wall clock: if that is set back, ticks pause until it has caught up.
    Exceptions of the callbacks are counted in ``drops`` and do not reach Dask's tick.
    """

    def __init__(
        self, scheduler: Scheduler, drops: Counter[str], *callbacks: Callable[[], None]
    ) -> None:
        self._drops = drops
        self._callbacks = callbacks
        self._dasks = scheduler.periodic_callbacks["tick"]
        self._original, self._dasks.callback = self._dasks.callback, self._look

    def stop(self) -> None:
        """Stop calling the callbacks."""
        self._callbacks = ()
        # If other code has wrapped our callback since, ours stays inside it and does nothing.
        if self._dasks.callback == self._look:
            self._dasks.callback = self._original

    def _look(self) -> Any:
        for callback in self._callbacks:
            try:  # fifty times a second
                callback()
            except Exception as error:
                contain(error, self._drops)
        return self._original()
