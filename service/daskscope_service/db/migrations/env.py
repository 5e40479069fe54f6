"""Run by Alembic around the revisions, on the connection that :mod:`..revisions` hands over."""

from __future__ import annotations

from alembic import context

from daskscope_service.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # The connection's transaction holds all of them, on SQLite too: all are applied, or none.
    transactional_ddl=True,
    # SQLite cannot alter a column: a table is made anew and its rows copied.
    render_as_batch=True,
)
context.run_migrations()
