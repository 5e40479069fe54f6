"""The user of each client, and whether its code may be sent. Dask knows clients by id only."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from distributed import Client

from daskscope.observe.cluster.connections import Peer
from daskscope.observe.cluster.environment import UNKNOWN_USER, host
from daskscope.protocol import UNREGISTERED

#: Clients whose user is stored. Beyond it, the client that registered longest ago is forgotten.
MAX_CLIENTS = 10_000

#: How the ids of clients begin that Dask gives to tasks, so that they can submit further work.
OF_A_TASK = "Client-worker-"


@dataclass(frozen=True, slots=True)
class Registrant:
    """The user and host of the client that registered or, with a preload, of the scheduler.

    ``program`` is the name of the program that runs there, "" if it has none. ``pipeline`` is the
    scheduled work that it belongs to: :mod:`daskscope.pipeline`.
    """

    user: str
    host: str
    client: str | None = None
    program: str = ""
    pipeline: dict[str, str] = field(default_factory=dict)


class Users:
    """Finds the user who sent a graph: the person whom a team lead would ask about it.

    - A client that registered belongs to the user whom it named, also after it reconnects.
    - If the plugin was preloaded, clients need not register. Those that did not belong to the user
      who runs the scheduler if it is in sight that they are that user's: they come from a process
      of that user on the scheduler's machine, or the scheduler runs in a batch job, a JupyterHub's
      server or a cluster of Dask Gateway, which are one user's. All others may be anyone's, and
      are named after their host.
    - If a client registered, other users may share the cluster, so other clients do not belong to
      that user by default. Their user is known in two cases only: the client lives in one process
      with the scheduler and a registered client, as on a ``LocalCluster``; or a task sent the graph
      while computations of a single user were running.
    - All other clients have the user ``unknown`` until they register.
    """

    def __init__(
        self,
        of_scheduler: str | None,
        drops: Counter[str],
        peer_of: Callable[[str], Peer | None],
        *,
        personal: bool = False,
    ) -> None:
        """``of_scheduler`` is the user who runs the scheduler, if the plugin was preloaded.

        ``peer_of`` returns where a client is, None if it is not connected. The scheduler is
        ``personal`` if it was started for one user.
        """
        self._of_scheduler = of_scheduler
        self._drops = drops
        self._peer_of = peer_of
        self._personal = personal
        # Of clients that have not registered: the user to show.
        self._unregistered: OrderedDict[str, str] = OrderedDict()
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
            return self._not_registered(client, self._of_scheduler)
        if self._here is not None and not client.startswith(OF_A_TASK) and _is_here(client):
            return self._here
        return UNKNOWN_USER

    def _not_registered(self, client: str, of_scheduler: str) -> str:
        """Return the user of a client of a preloaded scheduler."""
        if self._personal:
            return of_scheduler
        if client.startswith(OF_A_TASK):
            return UNKNOWN_USER  # of one of the users whose computations run
        user = self._unregistered.get(client)
        if user is None:
            peer = self._peer_of(client)
            if peer is None:  # it has left
                return UNREGISTERED
            user = _user_at(peer, of_scheduler)
            self._unregistered[client] = user
            if len(self._unregistered) > MAX_CLIENTS:
                self._unregistered.popitem(last=False)
        return user


def is_personal(deployment: Iterable[str]) -> bool:
    """Return whether a process that was started so is one user's; see ``daskscope.deployment``."""
    return any(
        name.endswith(".job.id") or name in ("gateway.cluster.name", "jupyterhub.user.name")
        for name in deployment
    )


def _user_at(peer: Peer, of_scheduler: str) -> str:
    if not peer.here:
        return f"{UNREGISTERED} on {peer.host}"
    if peer.uid is None or peer.uid == os.getuid():
        return of_scheduler
    return f"{UNREGISTERED} of uid {peer.uid} on {host()}"


def _is_here(client: str) -> bool:
    # Other threads may create clients meanwhile.
    with suppress(RuntimeError):
        return any(known.id == client for known in tuple(Client._instances))
    return False
