"""Estimates when a running computation will end and what it will cost, from earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daskscope_service.db.readable import Readable
from daskscope_service.insight.jobs.usual import Usual
from daskscope_service.insight.wording import duration, plural

#: From this share of its work on, a run's pace is used to estimate when it ends.
_LEAST_DONE = 0.2
#: A run is slower than usual if it takes at least this many times the usual duration, and is at
#: least this many standard deviations beyond it.
_LEAST_TIMES, _TIMES_SPREAD = 1.5, 3.0
#: If the number of tasks differs from the last run's by more than this share, the graph is other
#: work, or not complete yet.
_OTHER_TASKS = 0.1


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a running computation.

    ``usual_end_at`` is when it would end if it took as long as usual. ``ends_at`` is when it will
    end at its pace so far or, if that is unknown, as usual; None if the usual end has passed.
    ``done`` is the share of its work that is done, weighted by what tasks of each prefix took in
    the last run; None if the runs are not comparable. ``times_usual`` is its expected duration
    divided by the usual one; None unless it is slower than usual. ``cost`` is an estimate for all
    of the run.
    """

    usual_end_at: float
    ends_at: float | None
    done: float | None
    times_usual: float | None
    cost: float | None
    sentence: str


def expected_of(run: Readable, usual: Usual, done: float | None, now: float) -> Expected:
    """Return what is expected of ``run``. ``done`` is the share of its work that is done."""
    began, lasted = run["started_at"], run["duration"]
    usual_end = began + usual.duration
    much = max(_LEAST_TIMES, 1 + _TIMES_SPREAD * usual.spread)
    whole = lasted / done if done is not None and done >= _LEAST_DONE else None
    if whole is not None:
        ends_at: float | None = began + whole
    else:
        ends_at = usual_end if usual_end > now else None
    times = max(lasted, whole or 0.0) / usual.duration
    times_usual = times if times >= much else None
    cost = None
    if usual.cost is not None and ends_at is not None:
        cost = usual.cost * (ends_at - began) / usual.duration
    if run["cost"] is not None and lasted > 0 and ends_at is not None:
        cost = run["cost"] * (ends_at - began) / lasted
    return Expected(
        usual_end,
        ends_at,
        done,
        times_usual,
        cost,
        _sentence(usual, usual_end - now, times_usual, whole, lasted),
    )


def _sentence(
    usual: Usual, left: float, times: float | None, whole: float | None, lasted: float
) -> str:
    text = f"It usually takes {duration(usual.duration)}, the median of {plural(usual.runs, 'run')}"
    if times is not None:
        at = " at this point" if whole is not None and whole > lasted else ""
        text = f"It is {times:.1f} × slower than usual{at}. {text}"
    text += (
        f", and should end in {duration(left)}"
        if left > 0
        else f", and should have ended {duration(-left)} ago"
    )
    if whole is not None:
        text += f"; at its pace so far it ends in {duration(max(whole - lasted, 0.0))}"
    return f"{text}."


def share_done(groups: Sequence[Readable], last: Sequence[Readable]) -> float | None:
    """Return the share of the work of ``groups`` that is done, 0 to 1.

    Tasks are weighted by what those of their prefix took in the ``last`` run. Each group has
    ``prefix``, ``tasks``, ``completed`` and ``seconds``; those of the running computation also have
    ``done``. Return None if the number of tasks differs too much from the last run's.
    """
    tasks, before = (sum(group["tasks"] for group in some) for some in (groups, last))
    if not tasks or not before or abs(tasks / before - 1) > _OTHER_TASKS:
        return None
    spent: dict[str, list[float]] = {}
    for group in last:
        one = spent.setdefault(group["prefix"], [0.0, 0.0])
        one[0] += group["seconds"].get("compute", 0.0)
        one[1] += group["completed"]
    whole = finished = 0.0
    for group in groups:
        seconds, runs = spent.get(group["prefix"], (0.0, 0.0))
        each = seconds / runs if runs else 0.0
        whole += each * group["tasks"]
        finished += each * min(group["done"], group["tasks"])
    return finished / whole if whole > 0 else None
