"""Work that other plugins of the scheduler report, beside Dask's tasks."""

from __future__ import annotations

from distributed.scheduler import Scheduler

#: The name of the plugin of Frisky, a separate scheduler that ``frisky.hijack`` puts into Dask's.
FRISKY = "frisky-scheduler"

#: Seconds for which a plugin's report of work holds. Frisky reports every five seconds.
HELD = 60.0
#: Seconds without work of Dask's own after which ``idle_since`` must have come from a plugin if it
#: is still None. Dask updates it four times a second.
UNREASONED = 2.0


class Others:
    """Detects that a plugin keeps Dask's scheduler from being idle. Not thread-safe.

    Such a plugin sets ``scheduler.idle_since`` to None again and again, as Dask itself does. So
    everything that stops Dask's own ``idle-timeout`` from closing the cluster is detected.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._now = 0.0
        # ``idle_since`` at the last look, if Dask had counted all transitions by then.
        self._before: float | None = None
        self._unreasoned_from: float | None = None
        self._until = 0.0

    def look(self, now: float, *, quiet: bool) -> None:
        """Check who changed ``idle_since``; ``now`` is the time of a monotonic clock.

        ``quiet``: Dask itself had no reason to change it since the last look.
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
        """Describe which other plugin reports work; return None if none does."""
        tasks = self._frisky_tasks()
        if tasks:
            return f"Frisky, another scheduler in this one, has {tasks} tasks"
        if self._now >= self._until:
            return None
        who = "Frisky" if self.schedulers() else "another plugin of the scheduler"
        return f"{who} reports work"

    def schedulers(self) -> int:
        """Return how many other schedulers run inside Dask's, whose tasks Dask does not know."""
        return int(FRISKY in self._scheduler.plugins)

    def _frisky_tasks(self) -> int:
        plugin = self._scheduler.plugins.get(FRISKY)
        count = getattr(getattr(plugin, "scheduler", None), "n_tasks", 0)
        return count if isinstance(count, int) else 0

    def _by_jupyter(self, since: float | None) -> bool:
        # Use of a notebook in the scheduler's process also restarts Dask's idle time.
        if since is None or not getattr(self._scheduler, "jupyter", False):
            return False
        used: float = (
            self._scheduler._jupyter_server_application.web_app.last_activity().timestamp()
        )
        return since == used
