"""What a finding's action saves: a range, of time or of money, with the formula that it follows."""

from __future__ import annotations

from dataclasses import replace

from daskscope_service.insight.findings.evidence import Evidence
from daskscope_service.insight.findings.finding import SavedMoney, Saving
from daskscope_service.insight.wording import money


def sooner(evidence: Evidence, lost: float, formula: str) -> Saving | None:
    """Return what it saves not to lose ``lost`` thread-seconds: as if all threads shared them.

    ``formula`` says how many those are. None where the number of threads is not known.
    """
    threads = evidence.threads
    return Saving(0.0, lost / threads, "s", f"{formula} ÷ threads") if threads else None


def in_money(evidence: Evidence, high: float | None, formula: str) -> Saving | None:
    """Return a saving of up to ``high`` in the currency of the cluster's prices; None without."""
    currency = evidence.cluster.currency
    return Saving(0.0, high, currency, formula) if high and currency is not None else None


def of_the_run(evidence: Evidence) -> Saving | None:
    """Return what the computation cost as a saving: nothing came of it."""
    price, capacity = evidence.price_per_thread_second, evidence.capacity
    cost = None if price is None or capacity is None else price * capacity
    return in_money(evidence, cost, "cost of the whole run, of which nothing came")


def priced(saving: Saving, evidence: Evidence) -> Saving:
    """Return ``saving`` with what it is in money, where there are prices.

    An end that comes sooner saves what the threads cost in that time: if the cluster closes, or has
    other work.
    """
    price, currency = evidence.price_per_thread_second, evidence.cluster.currency
    if currency is None:
        return saving
    if saving.unit == currency:
        found = SavedMoney(saving.low, saving.high, currency, saving.formula)
    elif price is None or not evidence.threads:
        return saving
    else:
        a_second = price * evidence.threads
        formula = f"({saving.formula}) × {money(3600 * a_second, currency)} an hour of its threads"
        found = SavedMoney(saving.low * a_second, saving.high * a_second, currency, formula)
    return replace(saving, money=found)
