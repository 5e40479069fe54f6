"""A preload without options, ``--preload daskscope.preload``, for schedulers with other preloads.

``--preload daskscope`` adds an option per setting to the command line. Dask refuses two preloads
with options, and Dask Gateway starts its schedulers with a preload that has options. This module
has none: its settings come from Dask's configuration and the environment.
"""

from __future__ import annotations

from distributed.scheduler import Scheduler

from daskscope.registration import set_up


async def dask_setup(scheduler: Scheduler) -> None:
    """Record the cluster of ``scheduler``. Dask calls this when the scheduler starts."""
    await set_up(scheduler)
