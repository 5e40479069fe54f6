"""The user of each client, and whether its code may be sent. Dask knows clients by id only."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from distributed import Client

from daskscope.observe.cluster.environment import UNKNOWN_USER

#: Clients whose user is stored. Beyond it, the client that registered longest ago is forgotten.
MAX_CLIENTS = 10_000

#: How the ids of clients begin that Dask gives to tasks, so that they can submit further work.
OF_A_TASK = "Client-worker-"


@dataclass(frozen=True, slots=True)
class Registrant:
    """The user and host of the client that registered or, with a preload, of the scheduler.

    ``program`` is the name of the program that runs there, "" if it has none.
    """

    user: str
    host: str
    client: str | None = None
    program: str = ""


class Users:
    """Finds the user who sent a graph: the person whom a team lead would ask about it.

    - A client that registered belongs to the user whom it named, also after it reconnects.
    - If the plugin was preloaded, clients need not register: the others belong to the user who runs
      the scheduler, to whom the whole cluster belongs.
    - If a client registered, other users may share the cluster, so other clients do not belong to
      that user by default. Their user is known in two cases only: the client lives in one process
      with the scheduler and a registered client, as on a ``LocalCluster``; or a task sent the graph
      while computations of a single user were running.
    - All other clients have the user ``unknown`` until they register.
    """

    def __init__(self, of_scheduler: str | None, drops: Counter[str]) -> None:
        """``of_scheduler`` is the user who runs the scheduler, if the plugin was preloaded."""
        self._of_scheduler = of_scheduler
        self._drops = drops
        # By client: its user, and whether its code may be sent.
        self._clients: OrderedDict[str, tuple[str, bool]] = OrderedDict()
        # The user who registered from the scheduler's own process.
        self._here: str | None = None

    def client_is(self, client: str, user: str, *, sends_code: bool) -> None:
        """Store the client's user, and whether its code may be sent."""
        if _is_here(client):
            self._here = user
        self._clients[client] = user, sends_code
        self._clients.move_to_end(client)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
            self._drops["user of a client"] += 1

    def sends_code(self, client: str) -> bool:
        """Return whether that client has registered and has not refused to send its code.

        A client's graphs may contain code all the same, because of Dask's own setting ``nframes``.
        """
        _, sends_code = self._clients.get(client, ("", False))
        return sends_code

    def user_of(self, client: str, running: Callable[[], Collection[str]]) -> str:
        """Return the client's user; ``running`` returns the users whose computations run now."""
        known = self._clients.get(client)
        if known is not None:
            return known[0]
        if client.startswith(OF_A_TASK) and len(users := running()) == 1:
            return next(iter(users))
        if self._of_scheduler is not None:
            return self._of_scheduler
        if self._here is not None and not client.startswith(OF_A_TASK) and _is_here(client):
            return self._here
        return UNKNOWN_USER


def _is_here(client: str) -> bool:
    # Other threads may create clients meanwhile.
    with suppress(RuntimeError):
        return any(known.id == client for known in tuple(Client._instances))
    return False
