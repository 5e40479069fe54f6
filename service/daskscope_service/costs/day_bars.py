"""Bars over days: what each day cost or, if nothing has a price, how long threads ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from daskscope_service.costs.spending import UsageSum, total
from daskscope_service.insight.wording import hours, money

_DAY = 86400
_HEIGHT = 100.0


@dataclass(frozen=True, slots=True)
class DayBar:
    """One day. ``top`` and ``idle``: where the column and its idle part begin, of 100."""

    day: str
    words: str
    top: float
    idle: float


@dataclass(frozen=True, slots=True)
class DayBars:
    """The bars. ``what`` they show, in words; ``highest`` is the amount at the top."""

    what: str
    highest: str
    columns: tuple[DayBar, ...]


def columns(days: Sequence[UsageSum], last: int) -> DayBars | None:
    """Return a column for each of ``days``, which end with the day ``last``; None if all are zero.

    They show the currency with the largest sum.
    """
    spent = total(days).cost
    currency = max(spent, key=lambda name: spent[name], default=None)
    if currency is not None and spent[currency] > 0:
        pairs = [(day.cost.get(currency, 0.0), day.idle_cost.get(currency, 0.0)) for day in days]
    else:
        currency = None
        pairs = [(day.thread_seconds, day.idle_seconds) for day in days]
    highest = max(amount for amount, _ in pairs)
    if highest <= 0:
        return None

    def shown(amount: float) -> str:
        return hours(amount) if currency is None else money(amount, currency)

    bars = tuple(
        DayBar(
            datetime.fromtimestamp((last - len(pairs) + 1 + index) * _DAY, UTC).strftime(
                "%a %d %b"
            ),
            f"{shown(amount)}, of it idle {shown(idle)}",
            _HEIGHT - _HEIGHT * amount / highest,
            _HEIGHT - _HEIGHT * min(idle, amount) / highest,
        )
        for index, (amount, idle) in enumerate(pairs)
    )
    return DayBars("compute hours" if currency is None else currency, shown(highest), bars)
