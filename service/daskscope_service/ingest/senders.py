"""Whose a cluster is: its commands are for who sent it, and who sent it alone answers them.

That is the token that it was first sent with, or another one of the same user. Once that token is
not in force any more, the next one of the workspace that sends the cluster takes it over: a token
that was replaced must not leave a cluster behind that nobody can close.
"""

from __future__ import annotations

import time

from sqlalchemy import Connection, Engine, and_, select, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster
from daskscope_service.db.schema import token as table


def is_sender(engine: Engine, workspace: str, cluster_id: str, token: str) -> bool:
    """Tell whether a cluster of ``workspace`` belongs to the token of this id, or does from now on.

    One that is not there, or of which it is not known who sent it, belongs to whoever asks.
    """
    with engine.connect() as connection:
        first = connection.execute(
            select_in(workspace, cluster, cluster.c.token).where(cluster.c.id == cluster_id)
        ).scalar()
        if first is None or first == token or _same_user(connection, first, token):
            return True
        if _in_force(connection, first):
            return False
    with writing(engine) as connection:
        connection.execute(
            update(cluster)
            .where(
                cluster.c.workspace == workspace,
                cluster.c.id == cluster_id,
                cluster.c.token == first,
            )
            .values(token=token)
        )
    return True


def _same_user(connection: Connection, one: str, other: str) -> bool:
    query = select(table.c.user).where(table.c.id.in_([one, other]))
    users = connection.execute(query).scalars().all()
    return len(users) == 2 and None not in users and users[0] == users[1]


def _in_force(connection: Connection, token: str) -> bool:
    revoked_at, expires_at = table.c.revoked_at, table.c.expires_at
    lasts = expires_at.is_(None) | (expires_at > time.time())
    query = select(table.c.id).where(and_(table.c.id == token, revoked_at.is_(None), lasts))
    return connection.execute(query).first() is not None
