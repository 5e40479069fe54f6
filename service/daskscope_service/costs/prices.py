"""A workspace's prices per hour, for clusters whose own settings have none.

Costs are computed from them when they are read, so a change applies to all such clusters, past ones
too. A workspace that has set no prices uses list prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta
from sqlalchemy import Connection, delete, insert

from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import take_turns
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import price as table
from daskscope_service.web.fields import Currency, Unfit, is_fit

#: What can have a price here. Only a cluster's own settings can set a price for a worker, because
#: only the cluster knows how long it had each worker.
PRICED = ("thread", "gib", "gpu", "cluster")

#: The names of things that have a price.
THINGS: Mapping[str, str] = {
    "thread": "thread",
    "gib": "GiB of worker memory",
    "gpu": "GPU",
    "cluster": "cluster",
}

#: The most that an hour of something may cost.
_MOST = 1e6
Price = Annotated[float, Meta(ge=0, le=_MOST)]

#: Whose prices they are: the workspace's own, list prices, or none, because it wants no costs.
Source = Literal["workspace", "list", "none"]

#: OpenCost's default rates, ``configs/default.json`` of github.com/opencost/opencost (Apache-2.0):
#: on-demand machines of Google Cloud in us-central1. A thread counts as a vCPU.
LIST_CURRENCY = "USD"
LIST_PER_HOUR: Mapping[str, float] = {"thread": 0.031611, "gib": 0.004237, "gpu": 0.95}


@dataclass(frozen=True, slots=True)
class WorkspacePrices:
    """``per_hour`` maps some of :data:`PRICED` to the price of an hour in ``currency``.

    Both are empty if ``source`` is "none". ``changed_at`` and ``changed_by`` are None if nobody has
    set prices.
    """

    source: Source = "list"
    currency: str = LIST_CURRENCY
    per_hour: Mapping[str, float] = field(default_factory=lambda: LIST_PER_HOUR)
    changed_at: float | None = None
    changed_by: str | None = None


def prices_of(connection: Connection, workspace: str) -> WorkspacePrices:
    """Return the prices of a workspace, which may be list prices or none."""
    columns = [table.c[name] for name in WorkspacePrices.__slots__]
    row = connection.execute(select_in(workspace, table, *columns)).first()
    if row is None:
        return WorkspacePrices()
    if row.source == "list":
        return WorkspacePrices(changed_at=row.changed_at, changed_by=row.changed_by)
    return WorkspacePrices(*row)


def own_prices(currency: str, per_hour: Mapping[str, float]) -> WorkspacePrices:
    """Return a workspace's own prices; an empty ``per_hour`` means that it wants no costs."""
    if not per_hour:
        return WorkspacePrices("none", "", {})
    return WorkspacePrices("workspace", currency, dict(per_hour))


def wrong_with(prices: WorkspacePrices) -> dict[str, str]:
    """Return a message for each wrong field of ``prices``: of :data:`PRICED`, or the currency."""
    wrong = dict[str, str]()
    for name, amount in prices.per_hour.items():
        if not is_fit(Price, amount):
            wrong[name] = f"Write an amount from 0 to {_MOST:,.0f}."
    if prices.per_hour and not is_fit(Currency, prices.currency):
        wrong["currency"] = "Write the three-letter code of the currency, such as USD or EUR."
    return wrong


def set_prices(change: Change, prices: WorkspacePrices) -> None:
    """Store ``prices`` in place of the present ones.

    Raises
    ------
    Unfit
        See :func:`wrong_with`.
    """
    if wrong := wrong_with(prices):
        raise Unfit(*next(iter(wrong.items())))
    take_turns(change.connection, f"prices of {change.workspace}")
    change.connection.execute(delete(table).where(table.c.workspace == change.workspace))
    change.connection.execute(
        insert(table).values(
            workspace=change.workspace,
            source=prices.source,
            currency=prices.currency,
            per_hour=dict(prices.per_hour),
            findings_due=True,
            **change.stamp,
        )
    )
    detail = "list prices" if prices.source == "list" else "none"
    if prices.source == "workspace":
        parts = [f"{name} {amount:g}" for name, amount in prices.per_hour.items()]
        detail = f"{prices.currency} an hour: {', '.join(parts)}"
    change.log("prices changed", detail)
