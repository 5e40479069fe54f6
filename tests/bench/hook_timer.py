"""Times the plugin's hooks inside of a scheduler."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from distributed.scheduler import Scheduler

from daskscope.plugin import NAME

_HOOKS = ("transition", "update_graph", "log_event")


class HookTimer:
    """Seconds spent in the hooks so far. The timer's own share has been taken off."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._own = 0.0
        empty = self.around(lambda: None)
        batches = []
        for _ in range(50):
            self.seconds = 0.0
            for _ in range(500):
                empty()
            batches.append(self.seconds / 500)
        # The least: whatever else ran meanwhile only adds.
        self._own, self.seconds = min(batches), 0.0

    def around(self, hook: Callable[..., None]) -> Callable[..., None]:
        """Return ``hook``, timed."""

        @functools.wraps(hook)
        def timed(*args: Any, **kwargs: Any) -> None:
            began = time.perf_counter()
            hook(*args, **kwargs)
            self.seconds += time.perf_counter() - began - self._own

        return timed


def time_hooks(dask_scheduler: Scheduler) -> None:
    """Time the hooks from now on."""
    plugin = dask_scheduler.plugins[NAME]
    plugin.bench_timer = timer = HookTimer()  # type: ignore[attr-defined]
    for name in _HOOKS:
        setattr(plugin, name, timer.around(getattr(plugin, name)))


def seconds_in_hooks(dask_scheduler: Scheduler) -> float:
    """Return the seconds spent in the hooks since :func:`time_hooks`."""
    seconds: float = dask_scheduler.plugins[NAME].bench_timer.seconds  # type: ignore[attr-defined]
    return seconds
