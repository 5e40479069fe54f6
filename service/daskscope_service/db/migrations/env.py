"""Runs revisions for Alembic, on the connection that :mod:`..revisions` passes in."""

from __future__ import annotations

from alembic import context

from daskscope_service.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # One transaction contains all revisions, on SQLite too: all are applied, or none.
    transactional_ddl=True,
    # SQLite cannot alter a column: the table is created again and its rows are copied.
    render_as_batch=True,
)
context.run_migrations()
