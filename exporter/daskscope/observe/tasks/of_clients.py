"""Stores the rows of computations that were sent, for clients that ask what theirs did."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from daskscope import protocol

#: Rows that are stored for a client until it asks; beyond it the oldest are left out.
MAX_ROWS = 200
#: Clients that have asked. Beyond it, the one that asked longest ago is forgotten.
MAX_CLIENTS = 100


class OfClients:
    """The latest rows of the computations of each client since it asked last. On the event loop.

    ``client_of`` returns the client of a computation, by its id.
    """

    def __init__(self, client_of: Callable[[str], str | None]) -> None:
        self._client_of = client_of
        self._rows: OrderedDict[str, dict[str, protocol.Computation]] = OrderedDict()

    def sent(self, rows: Iterable[protocol.Computation]) -> None:
        """Store rows that are sent, of clients that have asked before."""
        if not self._rows:
            return
        for row in rows:
            known = self._rows.get(self._client_of(row.id) or "")
            if known is not None:
                known.pop(row.id, None)
                known[row.id] = row
                if len(known) > MAX_ROWS:
                    del known[next(iter(known))]

    def take(
        self, client: str, latest: Iterable[protocol.Computation]
    ) -> list[protocol.Computation]:
        """Return the rows of a client since its last call; store its rows from now on.

        ``latest`` are rows that may not have been sent yet; those of other clients are left out.
        """
        rows = self._rows.pop(client, {})
        rows |= {row.id: row for row in latest if self._client_of(row.id) == client}
        self._rows[client] = {}
        if len(self._rows) > MAX_CLIENTS:
            self._rows.popitem(last=False)
        return list(rows.values())[-MAX_ROWS:]
