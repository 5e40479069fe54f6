"""The first sentence of a page: what became of a computation or a cluster, and why."""

from __future__ import annotations

from daskscope_service.db.readable import Readable
from daskscope_service.insight.findings.finding import Finding, Measure, Saving
from daskscope_service.insight.findings.rules import Judgement
from daskscope_service.insight.lifetime import Lifetime, what_it_did
from daskscope_service.insight.stuck import waiting_for_worker
from daskscope_service.insight.verdict import has_not_reported, waited
from daskscope_service.insight.wording import (
    duration,
    estimate,
    money,
    number,
    percent,
    plural,
    size,
)

#: Rules whose findings the sentence of a cluster already says.
_OF_CLUSTERS = ("silent", "idle-cluster", "unrunnable")


def computation_headline(computation: Readable, judgement: Judgement) -> str:
    """Return the first sentence about a computation, a row with the ``sentence`` of its verdict.

    If no cause is known, it is that sentence. A silent cluster, or tasks that wait for a worker,
    come before any other cause.
    """
    first = _first(judgement)
    sentence: str = computation["sentence"]
    if first is None:
        return f"{sentence} {judgement.nothing}" if judgement.nothing else sentence
    took = duration(computation["duration"])
    status = computation["status"]
    beside = [""]
    if status == "running":
        tasks = plural(computation["tasks"], "task")
        began = f"Running for {took}, {number(computation['done'])} of {tasks} done"
        beside = [computation["waits"], has_not_reported(computation["silence"])]
    elif first.rule == "upstream-failed":
        began = f"Not finished after {took}" if computation["done"] else "Not run"
    elif status in _BEGINS:
        began = f"{_BEGINS[status]} {took}"
        if status == "cancelled":
            beside = [waited(computation, computation["done"], computation["duration"])]
    elif first.rule == "unrunnable" and computation["unrunnable_seconds"] is not None:
        return sentence  # it already says why
    else:  # lost: that is the first thing to say
        return f"{sentence} {first.sentence}"
    if first.rule == "unrunnable":
        beside[0] = ""
    if any(beside):
        return f"{'; '.join(filter(None, [began, *beside]))}. {first.sentence}"
    return f"{began}: {first.clause}."


def cluster_headline(cluster: Readable, judgement: Judgement, life: Lifetime) -> str:
    """Return the first sentence about a cluster, a row with the ``sentence`` of its verdict.

    For a cluster that is gone, it also says what the cluster did: ``life``.
    """
    first = _first(judgement)
    sentence: str = cluster["sentence"]
    if cluster["status"] == "running":
        if first is None or first.rule in _OF_CLUSTERS:
            return sentence
        if waiting_for_worker(
            cluster["held_by"], cluster["workers"], unrunnable="unrunnable"
        ):  # the finding is not the cause of that
            return f"{sentence} {first.sentence}"
        return f"{sentence.removesuffix('.')}: {first.clause}."
    # The clause of "idle-cluster" already says the cost.
    did = what_it_did(cluster, life, with_cost=first is None or first.rule != "idle-cluster")
    if cluster["status"] == "stopped":
        because = "" if first is None else f": {first.clause}"
        return f"{sentence.removesuffix('.')}, in which it {did}{because}."
    because = "" if first is None or first.rule == "silent" else f" {first.sentence}"
    return f"{sentence} It {did}.{because}"


_BEGINS = {"finished": "Finished in", "erred": "Failed after", "cancelled": "Cancelled after"}


def _first(judgement: Judgement) -> Finding | None:
    return next(iter(judgement.shown), None)


def in_words(measure: Measure) -> str:
    """Return the value of a measure with its unit."""
    value, unit = measure.value, measure.unit
    if unit == "By":
        return size(value)
    if unit == "s":
        return f"{value * 1e6:.0f} µs" if 0 < value < 0.001 else duration(value)
    if unit == "1":
        return percent(value)
    if unit == "{cpu}":
        return f"{value:.2f}"
    return number(value)


def threshold_in_words(value: float, unit: str) -> str:
    """Return a threshold's value with its unit: ``30.0 s``, ``2.5 %``, ``1.25 ×``, ``20 tasks``."""
    if unit == "1":
        return f"{100 * value:g}\N{NO-BREAK SPACE}%" if value < 1 else f"{value:g} ×"
    if unit == "By/s":
        return f"{size(value)}/s"
    if unit in ("By", "s"):
        return in_words(Measure("", value, unit))
    thing, _, per = unit.strip("{}").partition("}/")
    things = {"cpu": "cores"}.get(thing, f"{thing}s")
    return f"{value:g} {things}{f'/{per}' if per else ''}"


def saving_in_words(saving: Saving, source: str | None = None) -> str:
    """Return what an action saves, with the formula. ``source`` says who set the prices."""
    parts = []
    if saving.unit == "s":
        parts.append(_range(duration(saving.low) if saving.low else "", duration(saving.high)))
    formula = saving.formula
    if (amount := saving.money) is not None:
        least = money(amount.low, amount.currency) if amount.low else ""
        most = money(amount.high, amount.currency)
        parts.append(f"{_range(least, most)} ({estimate([source])})")
        formula = amount.formula
    elif not parts:
        parts.append(_range("", money(saving.high, saving.unit)))
    return f"saves {', '.join(parts)}: {formula}"


def _range(least: str, most: str) -> str:
    if least == most or most.startswith("<"):  # such as two amounts that are both tiny
        return most
    return f"{least} to {most}" if least else f"up to {most}"
