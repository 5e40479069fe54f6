"""Which users an invitation made: before, that was told by the audit log alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Apply it."""
    op.add_column("user", sa.Column("made_in", sa.String()))
    user = sa.table("user", sa.column("name", sa.String), sa.column("made_in", sa.String))
    entry = sa.table(
        "audit_entry",
        *(sa.column(name, sa.String) for name in ("action", "actor", "detail", "workspace")),
    )
    # The one who made the user, and the one who gave the first role, are the same invitation.
    made, given = entry.alias(), entry.alias()
    invited = (
        sa.select(sa.func.min(given.c.workspace))
        .where(
            made.c.action == "user made",
            made.c.detail == user.c.name,
            made.c.actor.like("invitation %"),
            given.c.actor == made.c.actor,
            given.c.action == "role changed",
        )
        .scalar_subquery()
    )
    op.execute(user.update().values(made_in=invited))
