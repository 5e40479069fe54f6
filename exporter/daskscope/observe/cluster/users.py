"""The user of each client, and what it refuses. Dask knows clients by id only."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from distributed import Client

from daskscope.observe.cluster.environment import UNKNOWN_USER

#: Clients whose user is remembered; beyond it those go that registered the longest ago.
MAX_CLIENTS = 10_000

#: What Dask calls the clients that tasks get to submit further work with.
OF_A_TASK = "Client-worker-"


@dataclass(frozen=True, slots=True)
class Registrant:
    """The user and host of the client that registered or, with a preload, of the scheduler.

    ``program`` is the name of what runs there, "" where it has none.
    """

    user: str
    host: str
    client: str | None = None
    program: str = ""


class Users:
    """Finds the user who sent a graph: the person whom a team lead would ask about it.

    - A client that registered is the user's who said so; still when it has lost its connection and
      comes back.
    - Where the plugin was preloaded, nobody needs to register: other clients count as those of the
      user who runs the scheduler, to whom the whole cluster belongs.
    - Where someone registered, others may share the cluster: a client that did not register is not
      taken for theirs. It is known only if it lives in one process with the scheduler and a client
      that registered, as on a ``LocalCluster``; or if a task sent the graph, while the computations
      of one user alone were running.
    - Of all others the user is ``unknown``, until they register, too.
    """

    def __init__(self, of_scheduler: str | None, drops: Counter[str]) -> None:
        """``of_scheduler`` is who runs the scheduler if the plugin was preloaded, else None."""
        self._of_scheduler = of_scheduler
        self._drops = drops
        # Of each client its user, and whether its code may be sent.
        self._clients: OrderedDict[str, tuple[str, bool]] = OrderedDict()
        # Who registered from the scheduler's own process.
        self._here: str | None = None

    def client_is(self, client: str, user: str, *, sends_code: bool) -> None:
        """Remember whose client that is, and whether it refuses to send its code."""
        if _is_here(client):
            self._here = user
        self._clients[client] = user, sends_code
        self._clients.move_to_end(client)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
            self._drops["user of a client"] += 1

    def sends_code(self, client: str) -> bool:
        """Return whether that client has registered and has not refused to send its code.

        Any client may send it: Dask has a setting for that, ``nframes``.
        """
        _, sends_code = self._clients.get(client, ("", False))
        return sends_code

    def user_of(self, client: str, running: Callable[[], Collection[str]]) -> str:
        """Return whose client that is; ``running`` gives the users whose computations run now."""
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
    # Other threads may make clients meanwhile.
    with suppress(RuntimeError):
        return any(known.id == client for known in tuple(Client._instances))
    return False
