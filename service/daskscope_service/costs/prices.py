"""What an hour costs in a workspace: for clusters whose own settings do not say it.

Costs that follow from it are made when they are read, so it counts for all such clusters, those of
the past too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, insert

from daskscope_service.accounts import audit
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import price as table

#: What can have a price: that of which the service knows the hours. Those of workers, of memory and
#: of GPUs only the cluster knows, which adds them up by its own settings.
PRICED = ("thread", "cluster")

#: The most that an hour of something may cost.
MOST = 1e6


@dataclass(frozen=True, slots=True)
class WorkspacePrices:
    """``per_hour`` maps some of :data:`PRICED` to what an hour of it costs in ``currency``."""

    currency: str
    per_hour: Mapping[str, float] = field(default_factory=dict)
    changed_at: float = 0.0
    changed_by: str = ""


def prices_of(connection: Connection, workspace: str) -> WorkspacePrices | None:
    """Return the prices of a workspace, None where none are set."""
    columns = [table.c[name] for name in WorkspacePrices.__slots__]
    row = connection.execute(select_in(workspace, table, *columns)).first()
    return None if row is None else WorkspacePrices(*row)


def set_prices(
    connection: Connection,
    workspace: str,
    prices: WorkspacePrices | None,
    *,
    actor: str,
    address: str | None,
) -> None:
    """Keep ``prices`` in place of those that there are; None for none."""
    connection.execute(delete(table).where(table.c.workspace == workspace))
    detail = "none"
    if prices is not None:
        connection.execute(
            insert(table).values(
                workspace=workspace,
                currency=prices.currency,
                per_hour=dict(prices.per_hour),
                changed_at=time.time(),
                changed_by=actor,
            )
        )
        parts = [f"{name} {amount:g}" for name, amount in prices.per_hour.items()]
        detail = f"{prices.currency} an hour: {', '.join(parts)}"
    audit.write(
        connection,
        "prices changed",
        actor=actor,
        detail=detail,
        workspace=workspace,
        address=address,
    )
