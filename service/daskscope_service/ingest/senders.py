"""Which tokens may report a cluster: the one that reported it first, and others of the same user.

Once the first token is revoked or has expired, the next token of the workspace that reports the
cluster takes its place: a rotated token must not leave a cluster behind that nobody can report or
close.
"""

from __future__ import annotations

import time

from sqlalchemy import Connection, Engine, and_, select, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster
from daskscope_service.db.schema import token as table

#: Pairs of a cluster and a token that are remembered.
_REMEMBERED = 20_000


class Senders:
    """Checks which tokens may report which clusters. May be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Hashes, because names of clusters may be long.
        self._known: set[int] = set()

    def may_report(self, workspace: str, cluster_id: str, token: str) -> bool:
        """Return whether the token of this id may report the cluster of ``workspace``.

        Any token may report a cluster that is not stored, or whose first token is not known.
        """
        pair = hash((workspace, cluster_id, token))
        if pair in self._known:
            return True
        query = select_in(workspace, cluster, cluster.c.token).where(cluster.c.id == cluster_id)
        with self._engine.connect() as connection:
            first = connection.execute(query).scalar()
            if first is None:
                return True  # and not remembered: another token may be the first to be stored
            may = first == token or _same_user(connection, first, token)
            if not may and _in_force(connection, first):
                return False
        if not may:
            self._replace(workspace, cluster_id, first, token)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()  # the database answers once more
        self._known.add(pair)
        return True

    def _replace(self, workspace: str, cluster_id: str, first: str, token: str) -> None:
        whose = (cluster.c.workspace == workspace) & (cluster.c.id == cluster_id)
        with writing(self._engine) as connection:
            connection.execute(
                update(cluster).where(whose, cluster.c.token == first).values(token=token)
            )


def _same_user(connection: Connection, one: str, other: str) -> bool:
    query = select(table.c.user).where(table.c.id.in_([one, other]))
    users = connection.execute(query).scalars().all()
    return len(users) == 2 and None not in users and users[0] == users[1]


def _in_force(connection: Connection, token: str) -> bool:
    revoked_at, expires_at = table.c.revoked_at, table.c.expires_at
    lasts = expires_at.is_(None) | (expires_at > time.time())
    query = select(table.c.id).where(and_(table.c.id == token, revoked_at.is_(None), lasts))
    return connection.execute(query).first() is not None
