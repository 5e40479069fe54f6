"""What a workspace means to spend in a month."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from sqlalchemy import Connection, delete, insert

from daskscope_service.accounts import audit
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
    """Return the budget of a workspace, None where there is none."""
    row = connection.execute(select_in(workspace, table, table.c.amount, table.c.currency)).first()
    return None if row is None else Budget(*row)


def set_budget(
    connection: Connection,
    workspace: str,
    budget: Budget | None,
    *,
    actor: str,
    client: str | None,
) -> None:
    """Store ``budget`` in place of the present one; None for none. Raises Unfit."""
    if budget is not None:
        wrong = "A budget is an amount above 0 and a currency, such as 500 EUR."
        check(Amount, budget.amount, "amount", wrong)
        check(Currency, budget.currency, "currency", wrong)
    connection.execute(delete(table).where(table.c.workspace == workspace))
    if budget is not None:
        connection.execute(
            insert(table).values(
                workspace=workspace,
                amount=budget.amount,
                currency=budget.currency,
                changed_at=time.time(),
                changed_by=actor,
            )
        )
    audit.write(
        connection,
        "budget changed",
        actor=actor,
        detail="none" if budget is None else f"{budget.amount:g} {budget.currency} a month",
        workspace=workspace,
        address=client,
    )
