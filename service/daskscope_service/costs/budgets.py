"""A workspace's budget for a month."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from msgspec import Meta
from sqlalchemy import Connection, delete, insert

from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import take_turns
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import budget as table
from daskscope_service.web.fields import Currency, check

Amount = Annotated[float, Meta(gt=0, le=1e12)]


@dataclass(frozen=True, slots=True)
class Budget:
    """``amount`` of ``currency`` (ISO 4217) for the clusters that start in a month of UTC."""

    amount: float
    currency: str


def budget_of(connection: Connection, workspace: str) -> Budget | None:
    """Return the budget of a workspace; None if it has none."""
    row = connection.execute(select_in(workspace, table, table.c.amount, table.c.currency)).first()
    return None if row is None else Budget(*row)


def set_budget(change: Change, budget: Budget | None) -> None:
    """Store ``budget`` in place of the present one; None removes it. Raises Unfit."""
    if budget is not None:
        wrong = "A budget is an amount above 0 and a currency, such as 500 EUR."
        check(Amount, budget.amount, "amount", wrong)
        check(Currency, budget.currency, "currency", wrong)
    take_turns(change.connection, f"budget of {change.workspace}")
    change.connection.execute(delete(table).where(table.c.workspace == change.workspace))
    if budget is not None:
        values = asdict(budget) | change.stamp
        change.connection.execute(insert(table).values(workspace=change.workspace, **values))
    change.log(
        "budget changed",
        "none" if budget is None else f"{budget.amount:g} {budget.currency} a month",
    )
