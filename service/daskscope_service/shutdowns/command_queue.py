"""Returns the commands for a cluster, for the answer to its heartbeat.

Each answer contains a command until the cluster reports a shutdown with its id: an answer may be
lost on its way, and the plugin acts on each command once. The state of a command is only in the
database, so any process may answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from sqlalchemy import Engine, func, update
from sqlalchemy.exc import DBAPIError

from daskscope.protocol import Command
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import command as table
from daskscope_service.shutdowns.commands import under_way

#: Seconds for which the ids of clusters that have commands are cached, so that hardly any heartbeat
#: needs a query.
REMEMBERED = 1.0

logger = logging.getLogger(__name__)


class CommandQueue:
    """Returns commands for clusters. May be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._addressed: dict[str, tuple[float, frozenset[str]]] = {}

    def take(self, workspace: str, cluster: str) -> tuple[Command, ...]:
        """Return the commands for ``cluster`` now, and store that they were delivered.

        Return none if the database does not answer: the heartbeat is stored, and the next one asks
        again.
        """
        try:
            if cluster not in self._recently_addressed(workspace):
                return ()
            return tuple(self._commands(workspace, cluster, time.time()))
        except DBAPIError as error:
            logger.warning("no commands were delivered: %s", error.orig)
            return ()

    def knows(self, workspace: str) -> bool:
        """Return whether the cache says that no cluster of ``workspace`` has a command."""
        at, clusters = self._addressed.get(workspace, (None, frozenset()))
        return at is not None and not clusters and time.monotonic() - at < REMEMBERED

    def _recently_addressed(self, workspace: str) -> frozenset[str]:
        moment = time.monotonic()
        at, clusters = self._addressed.get(workspace, (None, frozenset()))
        if at is None or moment - at >= REMEMBERED:
            query = select_in(workspace, table, table.c.cluster).where(
                table.c.expires_at > time.time()
            )
            with self._engine.connect() as connection:
                clusters = frozenset(connection.execute(query).scalars())
            self._addressed[workspace] = (moment, clusters)
        return clusters

    def _commands(self, workspace: str, cluster: str, now: float) -> Iterator[Command]:
        with self._engine.connect() as connection:
            rows = under_way(connection, workspace, cluster, now)
        for one in rows:
            if one["called_off_at"] is not None:
                yield Command(
                    id=one["id"],
                    action="call off",
                    requested_by=one["called_off_by"],
                    reason=one["called_off_reason"],
                )
            elif one["state"] is None and self._deliver(workspace, one["id"], now):
                yield Command(
                    id=one["id"],
                    action="shutdown",
                    requested_by=one["requested_by"],
                    reason=one["reason"],
                    grace=one["grace"],
                    even_if_busy=one["even_if_busy"],
                )

    def _deliver(self, workspace: str, command: str, now: float) -> bool:
        """Store that the command was delivered; return False if it was called off just now."""
        with writing(self._engine) as connection:
            done = connection.execute(
                update(table)
                .where(
                    table.c.workspace == workspace,
                    table.c.id == command,
                    table.c.called_off_at.is_(None),
                )
                .values(delivered_at=func.coalesce(table.c.delivered_at, now))
            )
        return done.rowcount > 0
