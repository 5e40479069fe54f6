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
    """Return what is sent from the cluster of ``client``: not described, but made.

    The cluster reports itself once more, as at every interval. What it reports, and the latest rows
    that it reported before, goes the way to the service and to OpenTelemetry again, up to where it
    would leave; once with the settings in force, and once with each switch turned off. What differs
    is what the switch sends.

    Parameters
    ----------
    client
        The client of the cluster; by default the current one.

    Returns
    -------
    Explanation
        Its repr is an overview; ``print()`` shows all of it. ``explanation["events.allow"]`` is the
        :class:`~daskscope.explanation.report.Part` of a switch, with what it sends and how many
        bytes, and ``explanation["always"]`` what no switch leaves out. Neither token nor secrets
        are in it. Where the cluster is not registered, ``problem`` says so. An awaitable of it
        for an asynchronous client.

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
        # By name, functions of the standard library alone, as in register().
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
    """Return what is sent from this cluster now; runs on the scheduler."""
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is None:
        return Explanation(problem=f"nobody has registered it. {NOT_REGISTERED}")
    assert isinstance(plugin, Plugin)
    if plugin.session is None:
        return Explanation(problem=plugin.failed or "it has ended there")
    return await plugin.session.explain()
