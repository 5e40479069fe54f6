"""``explain()``: shows what a cluster sends."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from distributed import Client
from distributed.scheduler import Scheduler

from daskscope.explanation.report import Explanation
from daskscope.plugin import NAME, Plugin
from daskscope.registration import current_client

#: What to do on a scheduler that has no plugin.
NOT_REGISTERED = "Call daskscope.register(), or start the scheduler with --preload daskscope"


def explain(client: Client | None = None) -> Any:
    """Return the actual data that the cluster of ``client`` sends.

    The cluster takes a snapshot, as at every interval. The snapshot and the latest rows sent before
    are processed for the service and for OpenTelemetry up to the point of sending: once with the
    settings in force, and once with each switch turned off. The difference is the data that the
    switch sends.

    Parameters
    ----------
    client
        The client of the cluster; by default the current one.

    Returns
    -------
    Explanation
        Its repr is an overview; ``print()`` shows all of it. ``explanation["events.allow"]`` is the
        :class:`~daskscope.explanation.report.SwitchData` of a switch, with its data and its sizes
        in bytes. ``explanation["always"]`` is the data that is sent whatever the switches are. It
        contains neither the token nor secrets. If the cluster is not registered, ``problem`` says
        so. For an asynchronous client, an awaitable is returned.

    Raises
    ------
    ConfigurationError
        There is no client, or it is closed.

    Examples
    --------
    >>> print(daskscope.explain())
    """
    client = current_client(client)
    return client.sync(_explain, client)


async def _explain(client: Client) -> Explanation:
    try:
        # Only functions of the standard library, which pickle by name: the scheduler may lack
        # daskscope.
        await client._run_on_scheduler(
            asyncio.to_thread, importlib.import_module, "daskscope.inspection"
        )
    except ImportError as error:
        return Explanation(
            problem=f"its scheduler cannot import daskscope ({error}). {NOT_REGISTERED}"
        )
    explanation: Explanation = await client._run_on_scheduler(explain_here)
    return explanation


async def explain_here(dask_scheduler: Scheduler) -> Explanation:
    """Return the data that this cluster sends now; runs on the scheduler."""
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is None:
        return Explanation(problem=f"it is not registered. {NOT_REGISTERED}")
    assert isinstance(plugin, Plugin)
    if plugin.session is None:
        return Explanation(problem=plugin.failed or "daskscope has stopped on the scheduler")
    return await plugin.session.explain()
