"""Rows that a beat's number from far ahead froze: later beats of the cluster changed nothing.

Such numbers are bounded by the service's clock since then; what was stored before is let be changed
by the next beat.
"""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_TABLES = (
    *("activity", "cluster", "computation", "event", "failure", "profile", "shutdown"),
    *("task_group", "usage", "worker_loss"),
)
#: Seconds: a scheduler's clock may be ahead of ours by a little.
_AHEAD = 600.0


def upgrade() -> None:
    """Apply it."""
    most = int((time.time() + _AHEAD) * 1000)
    for name in _TABLES:
        table = sa.table(name, sa.column("seq", sa.BigInteger))
        op.execute(table.update().where(table.c.seq > most).values(seq=0))
