"""A workspace's budgets for a month: of all its clusters, of a user's, of those with a tag."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from msgspec import Meta
from sqlalchemy import Connection, delete, func, insert, select

from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import take_turns
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import budget as table
from daskscope_service.web.fields import Currency, Unfit, check

Amount = Annotated[float, Meta(gt=0, le=1e12)]
User = Annotated[str, Meta(max_length=300, pattern=r"^[^\x00]*$")]
# A path in JSON, by which databases find a tag, can have no name with quotes or backslashes.
_TAG = r'^($(?!\n)|[^=\x00"\\]+=[^\x00]+$)'
Tag = Annotated[str, Meta(max_length=600, pattern=_TAG)]

#: Budgets of a workspace. Each is a sum over the month's clusters, in each round of notifications.
MOST_BUDGETS = 50


class TooManyBudgets(ValueError):
    """The workspace has as many budgets as it may have."""


@dataclass(frozen=True, slots=True)
class Budget:
    """``amount`` of ``currency`` (ISO 4217) for clusters that start in a month of UTC.

    They are the clusters of ``user``, or those with ``tag`` (``name=value``); all clusters of the
    workspace if both are empty.
    """

    amount: float
    currency: str
    user: str = ""
    tag: str = ""

    @property
    def name(self) -> str:
        """What it is for: "anna", "team=x", or "all clusters"."""
        return self.user or self.tag or "all clusters"


def budget_of(
    connection: Connection, workspace: str, user: str = "", tag: str = ""
) -> Budget | None:
    """Return the budget of a workspace, or of a user or tag there; None if it has none."""
    matches = (
        one for one in list_budgets(connection, workspace) if (one.user, one.tag) == (user, tag)
    )
    return next(matches, None)


def list_budgets(connection: Connection, workspace: str) -> list[Budget]:
    """Return the budgets: that of all clusters first, then those of users, then those of tags."""
    columns = (table.c.amount, table.c.currency, table.c.user, table.c.tag)
    query = select_in(workspace, table, *columns).order_by(table.c.tag, table.c.user)
    return [Budget(*row) for row in connection.execute(query)]


def set_budget(change: Change, budget: Budget) -> None:
    """Store ``budget`` in place of the present one for the same clusters.

    Raises Unfit, and TooManyBudgets for another one beyond :data:`MOST_BUDGETS`.
    """
    wrong = "A budget is an amount above 0 and a currency, such as 500 EUR."
    check(Amount, budget.amount, "amount", wrong)
    check(Currency, budget.currency, "currency", wrong)
    check(User, budget.user, "user", "A user's name has at most 300 characters, and none is NUL.")
    wrong = (
        "Write a tag as name=value, such as team=imaging; its name without quotes or backslashes."
    )
    check(Tag, budget.tag, "tag", wrong)
    if budget.user and budget.tag:
        raise Unfit("tag", "A budget is for a user or for a tag, not for both.")
    connection = change.connection
    take_turns(connection, f"budget of {change.workspace}")
    _delete(change, budget.user, budget.tag)
    stored = select(func.count()).select_from(table).where(table.c.workspace == change.workspace)
    if (connection.execute(stored).scalar() or 0) >= MOST_BUDGETS:
        raise TooManyBudgets(f"A workspace has at most {MOST_BUDGETS} budgets. Remove one first.")
    values = asdict(budget) | change.stamp
    connection.execute(insert(table).values(workspace=change.workspace, **values))
    change.log("budget changed", f"{budget.name}: {budget.amount:g} {budget.currency} a month")


def remove_budget(change: Change, user: str = "", tag: str = "") -> None:
    """Remove the budget of the workspace, or of a user or tag there, if there is one."""
    if _delete(change, user, tag):
        change.log("budget changed", f"{user or tag or 'all clusters'}: none")


def _delete(change: Change, user: str, tag: str) -> bool:
    statement = delete(table).where(
        table.c.workspace == change.workspace, table.c.user == user, table.c.tag == tag
    )
    return change.connection.execute(statement).rowcount > 0
