"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "${up_revision}"
down_revision = ${repr(down_revision).replace("'", '"')}


def upgrade() -> None:
    """Apply it."""
    ${upgrades if upgrades else "pass"}
