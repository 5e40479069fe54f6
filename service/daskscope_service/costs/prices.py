"""What an hour costs in a workspace: for clusters whose own settings do not say it.

Costs that follow from it are made when they are read, so it counts for all such clusters, those of
the past too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta
from sqlalchemy import Connection, delete, insert

from daskscope_service.accounts.change import Change
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import price as table
from daskscope_service.web.fields import Currency, Unfit, is_fit

#: What can have a price here: the service knows its hours. Only the cluster knows those of workers,
#: memory and GPUs, and it adds them up by its own settings.
PRICED = ("thread", "cluster")

#: The most that an hour of something may cost.
_MOST = 1e6
Price = Annotated[float, Meta(ge=0, le=_MOST)]


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


def wrong_with(prices: WorkspacePrices) -> dict[str, str]:
    """Return what is wrong with ``prices``, by field: one of :data:`PRICED`, or the currency."""
    wrong = dict[str, str]()
    for name, amount in prices.per_hour.items():
        if not is_fit(Price, amount):
            wrong[name] = f"Write an amount from 0 to {_MOST:,.0f}."
    if prices.per_hour and not is_fit(Currency, prices.currency):
        wrong["currency"] = "Write the three-letter code of the currency, such as USD or EUR."
    return wrong


def set_prices(change: Change, prices: WorkspacePrices | None) -> None:
    """Store ``prices`` in place of the present ones; None for none.

    Raises
    ------
    Unfit
        See :func:`wrong_with`.
    """
    if prices is not None and (wrong := wrong_with(prices)):
        raise Unfit(*next(iter(wrong.items())))
    change.connection.execute(delete(table).where(table.c.workspace == change.workspace))
    detail = "none"
    if prices is not None:
        change.connection.execute(
            insert(table).values(
                workspace=change.workspace,
                currency=prices.currency,
                per_hour=dict(prices.per_hour),
                **change.stamp,
            )
        )
        parts = [f"{name} {amount:g}" for name, amount in prices.per_hour.items()]
        detail = f"{prices.currency} an hour: {', '.join(parts)}"
    change.log("prices changed", detail)
