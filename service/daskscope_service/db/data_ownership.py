"""Which rows belong to a cluster or to a user: one answer, for export and for deletion.

To a user belong all rows of the clusters that name the user; and on other users' clusters the
user's computations, with the task groups, failures, notices, spans and log records that refer to
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    and_,
    or_,
    select,
    true,
    tuple_,
)

from daskscope import names
from daskscope_service.db import schema
from daskscope_service.db.rows import select_in

#: Only an attribute of these rows names their computation, so they must be read to find it.
_BY_ATTRIBUTES = (schema.log_record, schema.span)

#: These tables have an index by cluster and time, but none by cluster and key.
_TIMES_IN_INDEX = {
    schema.log_record: schema.log_record.c.at,
    schema.span: schema.span.c.started_at,
}

#: The tables of data that clusters send. Rows by which others are found come last. Points belong to
#: their series, and code to the computations that refer to it.
TABLES: tuple[Table, ...] = (
    *_BY_ATTRIBUTES,
    *(
        table
        for table in schema.metadata.sorted_tables
        if {"workspace", "cluster"} <= set(table.c.keys())
        and table not in (*_BY_ATTRIBUTES, schema.series, schema.computation)
    ),
    schema.series,
    schema.computation,
    schema.cluster,
)

#: How many users an error lists if the user that was asked for does not exist.
_USERS_NAMED = 20


@dataclass(frozen=True, slots=True)
class Whose:
    """Rows of a workspace: of a cluster, a user, or clusters silent since a time; else all."""

    workspace: str
    cluster: str | None = None
    user: str | None = None
    unheard_since: float | None = None

    def condition(self, table: Table) -> ColumnElement[bool]:
        """Return the condition for the rows of ``table``, one of TABLES, that belong here.

        In some tables it also holds for others: see :meth:`sieve`.
        """
        of = schema.cluster.c.id if table is schema.cluster else table.c.cluster
        chosen = table.c.workspace == self.workspace
        if self.cluster is not None:
            chosen = and_(chosen, of == self.cluster)
        if self.user is not None:
            chosen = and_(chosen, or_(of.in_(self._clusters()), self._named(table)))
        if self.unheard_since is not None:
            cluster = schema.cluster
            unheard = select_in(self.workspace, cluster, cluster.c.id).where(
                cluster.c.last_seen_at < self.unheard_since
            )
            # The column of the row itself, so that its locked state is checked.
            silent = cluster.c.last_seen_at < self.unheard_since
            chosen = and_(chosen, silent if table is cluster else of.in_(unheard))
        return chosen

    def sieve(self, connection: Connection, table: Table, rows: Sequence[Any]) -> list[Any]:
        """Return which of ``rows`` belong here; :meth:`condition` holds for all of them.

        They must have the columns that :func:`needed` returns.
        """
        if self.user is None or table not in _BY_ATTRIBUTES:
            return list(rows)
        theirs = set(connection.execute(self._clusters()).scalars())
        named = {(row.cluster, _computation(row)) for row in rows if row.cluster not in theirs}
        computation = schema.computation
        keys = tuple_(computation.c.cluster, computation.c.id)
        rows_of_theirs = connection.execute(
            self._computations().where(keys.in_(sorted(named)))
        ).all()
        own = {tuple(row) for row in rows_of_theirs}
        return [
            row for row in rows if row.cluster in theirs or (row.cluster, _computation(row)) in own
        ]

    def _clusters(self) -> Select[Any]:
        cluster = schema.cluster
        return select_in(self.workspace, cluster, cluster.c.id).where(cluster.c.user == self.user)

    def _computations(self) -> Select[Any]:
        table = schema.computation
        return select_in(self.workspace, table, table.c.cluster, table.c.id).where(
            table.c.user == self.user
        )

    def _named(self, table: Table) -> ColumnElement[bool]:
        # By a computation of the user, which may run on the cluster of another.
        if table is schema.computation:
            return table.c.user == self.user
        if table is schema.notice:
            computation = schema.computation
            notices = failure_notice(computation.c.cluster, computation.c.id)
            return table.c.id.in_(self._computations().with_only_columns(notices))
        if "computation" in table.c:
            return tuple_(table.c.cluster, table.c.computation).in_(self._computations())
        if table in _BY_ATTRIBUTES:
            computation = schema.computation
            return table.c.cluster.in_(
                self._computations().with_only_columns(computation.c.cluster)
            )
        return ~true()


def some_of(engine: Engine, whose: Whose) -> bool:
    """Return whether any row belongs to ``whose``."""
    with engine.connect() as connection:
        # A user with rows in the other tables has a computation, too.
        return any(
            connection.execute(keys(whose, table).limit(1)).first() is not None for table in TABLES
        )


def users(engine: Engine, workspace: str) -> list[str]:
    """Return some of the users whom clusters and computations of ``workspace`` name."""
    names_of_users: set[str] = set()
    with engine.connect() as connection:
        for table in (schema.cluster, schema.computation):
            query = select_in(workspace, table, table.c.user).distinct().limit(_USERS_NAMED)
            names_of_users.update(connection.execute(query.order_by(table.c.user)).scalars())
    return sorted(names_of_users)[:_USERS_NAMED]


def failure_notice(cluster: Any, computation: Any) -> Any:
    """Return the id of the notice that a computation failed; for columns, an SQL expression."""
    return "computation failed:" + cluster + ":" + computation


def loss_notice(cluster: str, loss: str) -> str:
    """Return the id of the notice that a cluster lost a worker."""
    return f"worker lost:{cluster}:{loss}"


def needed(table: Table) -> list[Any]:
    """Return the columns of ``table`` that determine whose a row is, the primary key first."""
    more = [table.c.cluster, table.c.attributes] if table in _BY_ATTRIBUTES else []
    return [*table.primary_key, *more]


def reading_order(whose: Whose, table: Table) -> list[Column[Any]]:
    """Return the columns by which rows of ``whose`` are read in parts, in the order of an index.

    Columns that are the same in all rows are left out: with them, SQLite would read from the first
    row on.
    """
    key = [column for column in table.primary_key if column.name != "workspace"]
    at = _TIMES_IN_INDEX.get(table)
    order = key if at is None else [table.c.cluster, at, *key]
    return order if whose.cluster is None else [c for c in order if c.name != "cluster"]


def keys(whose: Whose, table: Table) -> Select[Any]:
    """Return a query of the primary keys of the rows of ``table`` for which the condition holds."""
    return select(*table.primary_key).where(whose.condition(table))


def _computation(row: Any) -> str:
    attributes = row.attributes
    # Not a dictionary if it cannot be decrypted.
    value = attributes.get(names.COMPUTATION_ID) if isinstance(attributes, dict) else None
    return value if isinstance(value, str) else ""
