"""Hooks into Dask's own ticks of its event loop, some fifty a second.

To wake the loop for looks of our own would cost as much as dozens of tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from distributed.scheduler import Scheduler

from daskscope.containment import contain


class LoopTickHook:
    """Calls ``callbacks`` on the event loop whenever Dask looks at it, until :meth:`stop`.

    Dask goes by the wall clock: if that is set back, it does not look until its time comes again.
    What the callbacks raise is counted in ``drops``: the look that they join is Dask's.
    """

    def __init__(
        self, scheduler: Scheduler, drops: Counter[str], *callbacks: Callable[[], None]
    ) -> None:
        self._drops = drops
        self._callbacks = callbacks
        self._dasks = scheduler.periodic_callbacks["tick"]
        self._original, self._dasks.callback = self._dasks.callback, self._look

    def stop(self) -> None:
        """Do not call any more."""
        self._callbacks = ()
        # Someone may have joined after us: then ours stays, harmless, inside theirs.
        if self._dasks.callback == self._look:
            self._dasks.callback = self._original

    def _look(self) -> Any:
        for callback in self._callbacks:
            try:  # fifty times a second
                callback()
            except Exception as error:
                contain(error, self._drops)
        return self._original()
