"""Closes a cluster from its client, if the cluster's manager is in the client's process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import MutableMapping
from inspect import isawaitable
from typing import Any

from distributed import Client

from daskscope.containment import Contained, contain
from daskscope.shutdown.closing import MANAGER_TOPIC

logger = logging.getLogger("daskscope")


def heed_shutdowns(client: Client, drops: MutableMapping[str, int]) -> None:
    """Close the cluster of ``client`` through its manager when the scheduler requests it.

    Only the manager releases everything that it has started, such as jobs and machines. If it is in
    the scheduler's own process, the scheduler does not send the request. A client that connected by
    address has no manager, so nothing is done.
    """
    if client.cluster is None or MANAGER_TOPIC in client._event_handlers:
        return
    cluster, loop = client.cluster, asyncio.get_running_loop()

    def heed(event: tuple[float, Any]) -> None:
        message = event[1]
        reason = message.get("reason") if isinstance(message, dict) else None
        logger.warning("daskscope: closing this cluster, %s", reason or "as its scheduler asks.")
        # In a thread, because it may wait for the loop on which this runs.
        threading.Thread(
            target=_close, args=(cluster, loop), name="daskscope-shutdown", daemon=True
        ).start()

    client.subscribe_topic(MANAGER_TOPIC, Contained(drops).around(heed, otherwise=None))


def _close(cluster: Any, loop: asyncio.AbstractEventLoop) -> None:
    try:
        result = cluster.close()
        if isawaitable(result):

            async def closed() -> None:
                await result

            asyncio.run_coroutine_threadsafe(closed(), loop).result()
    except Exception as error:
        contain(error)
        logger.warning("daskscope: the cluster could not be closed: %r", error)
