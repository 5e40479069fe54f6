"""Sets the thresholds of a workspace. All its findings are then made again."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sqlalchemy import delete, insert

from daskscope_service.accounts.change import Change
from daskscope_service.db.schema import threshold as table
from daskscope_service.insight.findings.thresholds import TABLE
from daskscope_service.queries.thresholds import own_thresholds
from daskscope_service.web.fields import Unfit

_BY_NAME = {one.name: one for one in TABLE}


def set_thresholds(change: Change, own: Mapping[str, float]) -> None:
    """Store ``own`` in place of the workspace's thresholds. Those left out are the defaults.

    Raises
    ------
    Unfit
        There is no threshold of a given name, or its value is out of bounds.
    """
    for name, value in own.items():
        one = _BY_NAME.get(name)
        if one is None:
            raise Unfit(
                name, f"There is no threshold {name!r}. GET /api/v1/thresholds lists them all."
            )
        if not (math.isfinite(value) and one.least <= value <= one.most):
            raise Unfit(name, f"{name}: write a number from {one.least:g} to {one.most:,g}.")
    own = {name: float(value) for name, value in own.items() if value != _BY_NAME[name].value}
    before = own_thresholds(change.connection, change.workspace)
    if own == before:
        return
    change.connection.execute(delete(table).where(table.c.workspace == change.workspace))
    change.connection.execute(
        insert(table).values(
            workspace=change.workspace, own=dict(own), findings_due=True, **change.stamp
        )
    )
    changed = [
        f"{name} {own[name]:g}" if name in own else f"{name} as by default"
        for name in _BY_NAME
        if own.get(name) != before.get(name)
    ]
    change.log("thresholds changed", ", ".join(changed))


def change_thresholds(change: Change, changes: Mapping[str, float | None]) -> None:
    """Change some of the workspace's thresholds: None sets one to its default.

    Raises Unfit as :func:`set_thresholds` does.
    """
    own = dict(own_thresholds(change.connection, change.workspace))
    defaults = {name: one.value for name, one in _BY_NAME.items()}
    for name, value in changes.items():
        own[name] = defaults.get(name, math.nan) if value is None else value
    set_thresholds(change, own)
