"""The plugin's hooks in and out of one scheduler, by turns: what they cost it, and nothing else.

Two equal schedulers differ by some percent, a scheduler from itself by far less. And time taken
inside of the hooks leaves out what calling them costs, and what they do to the processor's caches.
"""

from __future__ import annotations

from distributed.scheduler import Scheduler

from daskscope.plugin import NAME


def take_hooks_out(dask_scheduler: Scheduler) -> None:
    """Have Dask call the plugin no more; its threads and its beats go on."""
    plugin = dask_scheduler.plugins.pop(NAME, None)
    if plugin is not None:
        # It would end at its next beat.
        plugin._running._is_installed = lambda: True  # type: ignore[attr-defined]
        dask_scheduler.bench_plugin = plugin  # type: ignore[attr-defined]


def put_hooks_in(dask_scheduler: Scheduler) -> None:
    """Have Dask call it again, if it does not."""
    if NAME not in dask_scheduler.plugins:
        dask_scheduler.plugins[NAME] = dask_scheduler.bench_plugin  # type: ignore[attr-defined]
