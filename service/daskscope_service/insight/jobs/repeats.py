"""Work that ran more than once on the same inputs: how often, what it took, what would do instead.

Dask's names of task groups end with a token of what the tasks do and of their inputs, so groups of
the same name did the same work.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Literal

from daskscope_service.insight.views import RepeatView
from daskscope_service.insight.wording import hours, money, plural, size

#: What would have run the work once: one ``compute`` of all results, ``persist``, a file.
Instead = Literal["compute", "persist", "file"]

#: The most runs of a group, the newest, that are added up.
MOST_RUNS = 200
#: The most users that are named.
_MOST_USERS = 5
#: Seconds from the end of a run to the next one up to which one ``compute`` could have done both.
_AT_ONCE = 60.0
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class GroupRun:
    """A task group in one computation that ran all its tasks. Times are since the Unix epoch.

    ``seconds`` are those of the threads; ``began`` is when the first of its tasks did.
    """

    cluster: str
    computation: str
    user: str
    at: float
    ended_at: float
    prefix: str
    tasks: int
    seconds: float
    cost: float | None
    currency: str | None
    output_bytes: int
    began: float


@dataclass(frozen=True, slots=True)
class Repeat:
    """What the runs of one group come to. ``again``: without the first of them.

    ``cost_again`` is None unless all these runs have a cost in one currency. ``together`` is equal
    for groups that ran in the same computations. ``step`` is the time from the start of the newest
    computation to that of the group.
    """

    prefix: str
    runs: int
    users: list[str]
    people: int
    clusters: int
    seconds_again: float
    cost_again: float | None
    currency: str | None
    first_at: float
    last_at: float
    last_cluster: str
    last_computation: str
    output_bytes: int
    instead: Instead
    together: str
    step: float


def repeat_of(runs: Sequence[GroupRun]) -> Repeat | None:
    """Return what the ``runs`` of one group come to, oldest first; None if it ran only once.

    Runs with another number of tasks than the newest are left out: they did not do the same, as for
    groups whose names users chose.
    """
    newest = runs[-1] if runs else None
    same = [run for run in runs if newest is not None and run.tasks == newest.tasks]
    if newest is None or len(same) < 2:
        return None
    again = same[1:]
    costs = [run.cost for run in again if run.cost is not None]
    currencies = {run.currency for run in again}
    is_priced = len(costs) == len(again) and len(currencies) == 1
    users = Counter(run.user for run in same)
    where = sorted((run.cluster, run.computation) for run in same)
    return Repeat(
        prefix=newest.prefix,
        runs=len(same),
        users=[user for user, _ in users.most_common(_MOST_USERS)],
        people=len(users),
        clusters=len({run.cluster for run in same}),
        seconds_again=sum(run.seconds for run in again),
        cost_again=sum(costs) if is_priced else None,
        currency=newest.currency if is_priced else None,
        first_at=same[0].at,
        last_at=newest.at,
        last_cluster=newest.cluster,
        last_computation=newest.computation,
        output_bytes=newest.output_bytes,
        instead=_instead(same),
        together=blake2b(repr(where).encode(), digest_size=8).hexdigest(),
        step=newest.began - newest.at,
    )


def _instead(runs: Sequence[GroupRun]) -> Instead:
    if len({run.cluster for run in runs}) > 1:
        return "file"
    of_one = len({run.user for run in runs}) == 1
    if of_one and all(later.at - run.ended_at <= _AT_ONCE for run, later in pairwise(runs)):
        return "compute"
    return "persist"


def joined(
    rows: Iterable[Mapping[str, Any]], now: float, most: int | None = None
) -> list[RepeatView]:
    """Return the work that ran again, the most thread time first; ``most``: no more than that.

    ``rows`` have the fields of :class:`Repeat`, and ``name``. Groups that ran in the same
    computations are one work.
    """
    works: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        works[row["together"]].append(row)
    ordered = [
        sorted(steps, key=lambda step: (step["step"], step["name"])) for steps in works.values()
    ]
    ordered.sort(key=lambda steps: (-_seconds_again(steps), steps[0]["name"]))
    return [_joined(steps, now) for steps in ordered[:most]]


def _seconds_again(steps: Iterable[Mapping[str, Any]]) -> float:
    return float(sum(step["seconds_again"] for step in steps))


def _joined(steps: Sequence[Mapping[str, Any]], now: float) -> RepeatView:
    """Return one work; ``steps`` are in the order in which they start."""
    first, last = steps[0], steps[-1]
    costs = [step["cost_again"] for step in steps]
    currencies = {step["currency"] for step in steps}
    is_priced = None not in costs and len(currencies) == 1
    work: dict[str, Any] = {
        **first,
        "seconds_again": _seconds_again(steps),
        "cost_again": sum(costs) if is_priced else None,
        "currency": first["currency"] if is_priced else None,
        # What the steps after these need is what the last one returns.
        "output_bytes": last["output_bytes"],
        "steps": [step["prefix"] for step in steps],
        "last_step": last["prefix"],
    }
    work["title"] = _title(work["steps"])
    work["sentence"] = sentence(work, now)
    work["advice"] = _ADVICE[work["instead"]].format(
        step=work["last_step"], size=size(work["output_bytes"])
    )
    return RepeatView.of(work)


_ADVICE: dict[str, str] = {
    "compute": "One dask.compute of all these results would have run it once.",
    "persist": "A persist of {step} would have run it once; it takes {size} of memory.",
    "file": "A file with the result of {step} ({size} in memory) would have run it once for all.",
}


def _title(steps: Sequence[str]) -> str:
    if len(steps) == 1:
        return steps[0]
    return f"{steps[0]} and {plural(len(steps) - 1, 'step')} after it"


def sentence(work: Mapping[str, Any], now: float) -> str:
    """Return how often ``work`` ran since when, by whom and where, and what the repeats took."""
    # No more runs are read.
    often = f"{'at least ' if work['runs'] >= MOST_RUNS else ''}{plural(work['runs'], 'time')}"
    whose = f", for {work['people']} users" if work["people"] > 1 else ""
    where = f", on {work['clusters']} clusters" if work["clusters"] > 1 else ""
    cost = "" if work["cost_again"] is None else f" ({money(work['cost_again'], work['currency'])})"
    return (
        f"{work['title']} ran {often} since {_since(work['first_at'], now)}, on the same "
        f"inputs{whose}{where}: {_thread_time(work['seconds_again'])}{cost} after the first time."
    )


def _thread_time(seconds: float) -> str:
    if seconds < 90:
        return plural(round(seconds), "thread-second")
    if round(seconds / 60) < 60:
        return plural(round(seconds / 60), "thread-minute")
    return f"{hours(seconds).removesuffix(' h')} thread-hours"


def _since(at: float, now: float) -> str:
    """Return a time of UTC as people say it: the hour of a day, a day of this week, or a date."""
    moment = time.gmtime(at)
    if now - at < _DAY:
        return time.strftime("%H:%M UTC", moment)
    if now - at < 6 * _DAY:
        return time.strftime("%A", moment)
    year = "" if moment.tm_year == time.gmtime(now).tm_year else f" {moment.tm_year}"
    return f"{moment.tm_mday} {time.strftime('%B', moment)}{year}"
