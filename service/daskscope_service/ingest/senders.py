"""Which tokens may report a cluster: the one that reported it first, and others of the same user.

Once the first token is revoked or has expired, the next token of the workspace that reports the
cluster takes its place: a rotated token must not leave a cluster behind that nobody can report or
close.
"""

from __future__ import annotations

import time

from sqlalchemy import Engine, bindparam, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, token
from daskscope_service.db.statements import Lookup

#: How many pairs of a cluster and a token are cached.
_REMEMBERED = 20_000

_sender = token.alias("sender")

#: The token that reported a cluster first, its state, and the user of the sending token.
_FIRST = (
    select_in(
        bindparam("workspace"),
        cluster,
        cluster.c.token,
        token.c.id,
        token.c.user,
        token.c.revoked_at,
        token.c.expires_at,
        _sender.c.user,
    )
    .outerjoin(token, token.c.id == cluster.c.token)
    .outerjoin(_sender, _sender.c.id == bindparam("sender"))
    .where(cluster.c.id == bindparam("cluster"))
)


class Senders:
    """Checks which tokens may report which clusters. May be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._first = Lookup(engine.dialect, _FIRST)
        # Hashes, because names of clusters may be long.
        self._known: set[int] = set()

    def may_report(self, workspace: str, cluster_id: str, sender: str) -> bool:
        """Return whether the token with the id ``sender`` may report the cluster of ``workspace``.

        Any token may report a cluster that is not stored, or whose first token is not known.

        The database is asked once for each pair, and again for a pair that was refused: that costs
        a fraction of storing a heartbeat.
        """
        pair = hash((workspace, cluster_id, sender))
        if pair in self._known:
            return True
        sender_row = self._first.first(
            self._engine, workspace=workspace, cluster=cluster_id, sender=sender
        )
        if sender_row is None or sender_row[0] is None:
            return True  # and not remembered: another token may be the first to be stored
        first, there, user, revoked_at, expires_at, user_of_sender = sender_row
        if first != sender and (user is None or user != user_of_sender):
            expired = expires_at is not None and expires_at <= time.time()
            if there is not None and revoked_at is None and not expired:
                return False
            self._replace(workspace, cluster_id, first, sender)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()  # the database answers once more
        self._known.add(pair)
        return True

    def _replace(self, workspace: str, cluster_id: str, first: str, sender: str) -> None:
        whose = (cluster.c.workspace == workspace) & (cluster.c.id == cluster_id)
        with writing(self._engine) as connection:
            connection.execute(
                update(cluster).where(whose, cluster.c.token == first).values(token=sender)
            )
