"""Stores the opt-outs of clients whose settings are not in force.

A client's opt-out applies to its own computations. It applies to all data whose client is not
known, such as the workers' profile or the task stream.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace

from daskscope.config import Settings
from daskscope.observe.cluster.users import OF_A_TASK

#: Clients whose opt-outs are stored separately. Beyond it, the opt-outs of the oldest apply to all.
MAX_CLIENTS = 10_000
#: Computations whose client is known; for the others, one client's opt-out counts for all.
MAX_COMPUTATIONS = 10_000

#: The settings that a client can refuse.
REFUSABLE = (
    "code_transmit",
    "exceptions_transmit",
    "profile_transmit",
    "stream_transmit",
    "logs_transmit",
    "traces_transmit",
    "instances_transmit",
)


def refused_by(settings: Settings) -> frozenset[str]:
    """Return which of :data:`REFUSABLE` the settings turn off."""
    return frozenset(switch for switch in REFUSABLE if not getattr(settings, switch))


class OptOuts:
    """The opt-outs of all clients. Changed on the event loop, read in any thread."""

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        self._of_clients: dict[str, frozenset[str]] = {}
        self._of_forgotten: frozenset[str] = frozenset()
        self._of_any: frozenset[str] = frozenset()
        # The client of each computation, by the computation's id.
        self._clients: OrderedDict[str, str] = OrderedDict()

    def client_refuses(self, client: str, refused: frozenset[str]) -> None:
        """Store what the client refuses from now on; replaces its earlier opt-outs."""
        # Replace it in one step, because other threads read it meanwhile.
        if refused:
            self._of_clients[client] = refused
        else:
            self._of_clients.pop(client, None)
        if len(self._of_clients) > MAX_CLIENTS:
            first = next(iter(self._of_clients))
            self._of_forgotten |= self._of_clients[first]
            self._of_any |= self._of_forgotten
            del self._of_clients[first]
            self._drops["refusal of a client"] += 1
        self._of_any = self._of_forgotten.union(*self._of_clients.values())

    def began(self, computation: str, client: str) -> None:
        """Store the client of a computation."""
        self._clients[computation] = client
        if len(self._clients) > MAX_COMPUTATIONS:
            self._clients.popitem(last=False)

    def client_of(self, computation: str) -> str | None:
        """Return the id of the client of a computation; None if it is not known."""
        return self._clients.get(computation)

    def by_any(self, switch: str) -> bool:
        """Return whether any client refuses that setting."""
        return switch in self._of_any

    def by_owner_of(self, computation: str | None, switch: str) -> bool:
        """Return whether the computation's client refuses that setting, or may do so."""
        if switch not in self._of_any:
            return False
        client = None if computation is None else self._clients.get(computation)
        if client is None or client.startswith(OF_A_TASK):
            return True
        return switch in self._of_forgotten or switch in self._of_clients.get(client, ())

    def in_force(self, settings: Settings) -> Settings:
        """Return ``settings`` without what any client refuses of data that is of all clients."""
        return replace(
            settings,
            profile_transmit=settings.profile_transmit and not self.by_any("profile_transmit"),
            stream_transmit=settings.stream_transmit and not self.by_any("stream_transmit"),
            logs_transmit=settings.logs_transmit and not self.by_any("logs_transmit"),
            instances_transmit=settings.instances_transmit
            and not self.by_any("instances_transmit"),
        )
