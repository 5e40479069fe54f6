"""Work that other plugins of the scheduler report, beside Dask's tasks."""

from __future__ import annotations

from distributed.scheduler import Scheduler

#: Frisky, a scheduler of its own that ``frisky.hijack`` puts into Dask's: the name of its plugin.
FRISKY = "frisky-scheduler"

#: Seconds that it counts for as long as a plugin has said that it is at work: Frisky says so every
#: five seconds.
HELD = 60.0
#: Seconds that Dask does not count itself as idle without a reason of its own. It looks four times
#: a second.
UNREASONED = 2.0


class Others:
    """Hears that a plugin keeps Dask's scheduler from being idle. Not thread-safe.

    A plugin does so by what Dask itself does: it sets ``scheduler.idle_since`` to None, again and
    again. So whatever keeps Dask's own ``idle-timeout`` from closing the cluster is heard here.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._now = 0.0
        # Since when Dask was idle at the last look, if it had seen all there was to see.
        self._before: float | None = None
        self._unreasoned_from: float | None = None
        self._until = 0.0

    def look(self, now: float, *, quiet: bool) -> None:
        """See what was done to Dask's idleness, ``now`` by a clock that does not jump.

        ``quiet`` says that Dask had no reason of its own since the last look.
        """
        self._now = now
        if not quiet:
            self._before = self._unreasoned_from = None
            return
        scheduler = self._scheduler
        since: float | None = scheduler.idle_since
        if self._before is not None and since != self._before and not self._by_jupyter(since):
            self._until = now + HELD
        if since is not None:
            self._unreasoned_from = None
        elif self._unreasoned_from is None:
            self._unreasoned_from = now
        elif now - self._unreasoned_from >= UNREASONED:
            self._until = now + HELD
        caught_up = scheduler._idle_transition_counter == scheduler.transition_counter
        self._before = since if caught_up else None

    def at_work(self) -> str | None:
        """Return in words which other plugin reports work; None if none does."""
        tasks = self._frisky_tasks()
        if tasks:
            return f"Frisky, a scheduler of its own, holds {tasks} tasks"
        if self._now >= self._until:
            return None
        who = "Frisky" if self.schedulers() else "another plugin of the scheduler"
        return f"{who} says that it is at work"

    def schedulers(self) -> int:
        """Return how many other schedulers run inside Dask's, whose tasks Dask does not know."""
        return int(FRISKY in self._scheduler.plugins)

    def _frisky_tasks(self) -> int:
        plugin = self._scheduler.plugins.get(FRISKY)
        count = getattr(getattr(plugin, "scheduler", None), "n_tasks", 0)
        return count if isinstance(count, int) else 0

    def _by_jupyter(self, since: float | None) -> bool:
        # Someone used a notebook in the scheduler's process, which begins Dask's idleness anew.
        if since is None or not getattr(self._scheduler, "jupyter", False):
            return False
        used: float = (
            self._scheduler._jupyter_server_application.web_app.last_activity().timestamp()
        )
        return since == used
