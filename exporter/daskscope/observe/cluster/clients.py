"""The connected clients: their users and hosts, and the results that they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

from distributed.comm.addressing import get_address_host
from distributed.metrics import time
from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.containment import guarded
from daskscope.observe.cluster.environment import UNKNOWN_USER

#: Clients that are looked at, and clients that are sent: those that hold the most results.
MAX_LOOKED_AT, MAX_SENT = 1_000, 20
#: Results whose sizes are added up in one look. The size is unknown for clients beyond it.
MAX_RESULTS = 10_000


class Clients:
    """Remembers since when each client is connected. ``user_of`` returns the user of a client."""

    def __init__(
        self, scheduler: Scheduler, user_of: Callable[[str], str], drops: Counter[str]
    ) -> None:
        self._scheduler = scheduler
        self._user_of = user_of
        self._drops = drops
        self._since: dict[str, float] = {}
        # By name, the rows that were returned last.
        self._rows: dict[str, protocol.ConnectedClient] = {}

    def rows(self) -> tuple[protocol.ConnectedClient, ...]:
        """Return rows of the connected clients; those that hold the most results come first."""
        now, known = time(), self._since
        there = [
            (name, client)
            for name, client in islice(self._scheduler.clients.items(), MAX_LOOKED_AT)
            if name != "fire-and-forget"
        ]
        self._since = {name: known.get(name, now) for name, _ in there}
        there.sort(key=lambda item: -len(item[1].wants_what))
        room = MAX_RESULTS
        rows = {}
        for name, client in there[:MAX_SENT]:
            count, nbytes = len(client.wants_what), None
            if count <= room:
                room -= count
                # Dask gives a result that is not in memory the size -1.
                nbytes = sum(max(task.nbytes, 0) for task in client.wants_what)
            row = guarded(self._drops, None, self._row, name, count, nbytes)
            if row is not None:
                rows[name] = row
        self._rows = rows
        return tuple(rows.values())

    def last_rows(self) -> tuple[protocol.ConnectedClient, ...]:
        """Return the rows of the last call of :meth:`rows`, with the users that are known by now.

        A client may register after it was looked at.
        """
        return tuple(
            replace(row, user=self._user_of(name)[: protocol.MAX_NAME])
            if row.user == UNKNOWN_USER
            else row
            for name, row in self._rows.items()
        )

    def _row(self, name: str, count: int, nbytes: int | None) -> protocol.ConnectedClient:
        return protocol.ConnectedClient(
            user=self._user_of(name)[: protocol.MAX_NAME],
            host=self._host_of(name)[: protocol.MAX_NAME],
            since=self._since[name],
            results=count,
            bytes=nbytes,
        )

    def _host_of(self, name: str) -> str:
        """Return the host that the client is connected from; "" if it is unknown."""
        stream: Any = self._scheduler.client_comms.get(name)
        address = getattr(getattr(stream, "comm", None), "peer_address", None)
        # The address of a client in the scheduler's own process names no host.
        if not address or address.startswith("inproc://"):
            return ""
        return str(get_address_host(address))
