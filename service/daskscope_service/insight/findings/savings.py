"""What the action of a finding saves: a range of time or of money, with its formula."""

from __future__ import annotations

from dataclasses import replace

from daskscope_service.insight.findings.evidence import Evidence
from daskscope_service.insight.findings.finding import SavedMoney, Saving
from daskscope_service.insight.wording import money


def time_saving(evidence: Evidence, lost: float, formula: str) -> Saving | None:
    """Return the saving of up to ``lost`` thread-seconds, divided among all threads.

    ``formula`` explains ``lost``. Return None if the number of threads is not known.
    """
    threads = evidence.threads
    return Saving(0.0, lost / threads, "s", f"{formula} ÷ threads") if threads else None


def in_money(evidence: Evidence, high: float | None, formula: str) -> Saving | None:
    """Return a saving of up to ``high`` in the cluster's currency; None without prices."""
    currency = evidence.cluster.currency
    return Saving(0.0, high, currency, formula) if high and currency is not None else None


def of_the_run(evidence: Evidence) -> Saving | None:
    """Return the whole cost of the computation, which failed, as the most that is saved."""
    price, capacity = evidence.price_per_thread_second, evidence.capacity
    cost = None if price is None or capacity is None else price * capacity
    done = 0 if evidence.run is None else evidence.run.done
    but = "which failed" if done else "of which nothing came"
    return in_money(evidence, cost, f"cost of the whole run, {but}")


def with_money(saving: Saving, evidence: Evidence) -> Saving:
    """Return ``saving`` with its value in money, if there are prices.

    A computation that ends sooner saves the cost of the threads in that time, provided that the
    cluster then closes or has other work.
    """
    price, currency = evidence.price_per_thread_second, evidence.cluster.currency
    if currency is None:
        return saving
    if saving.unit == currency:
        saved = SavedMoney(saving.low, saving.high, currency, saving.formula)
    elif price is None or not evidence.threads:
        return saving
    else:
        a_second = price * evidence.threads
        formula = f"({saving.formula}) × {money(3600 * a_second, currency)} an hour of its threads"
        saved = SavedMoney(saving.low * a_second, saving.high * a_second, currency, formula)
    return replace(saving, money=saved)
