"""When a run that goes on should end, and what it will cost, by the runs before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daskscope_service.db.readable import Readable
from daskscope_service.insight.jobs.usual import Usual
from daskscope_service.insight.wording import duration, plural

#: From so much of its work on, what is done says how long the rest takes.
_LEAST_DONE = 0.2
#: Less than so many times as long as usual is no news, nor are three deviations.
_LEAST_TIMES, _TIMES_SPREAD = 1.5, 3.0
#: A graph with so many more or fewer tasks than the last run is other work, or not yet all of it.
_OTHER_TASKS = 0.1


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a run that goes on.

    ``usual_end_at`` is when it would have ended if it took as long as usual; ``ends_at`` when it
    will at its pace so far, or as usual: None where neither says so. ``done`` is how much of its
    work is done, by what tasks of a kind took in the last run; None where that says nothing.
    ``times_usual`` is how many times longer it takes than usual at this point, None where not so.
    ``cost`` is an estimate for all of it.
    """

    usual_end_at: float
    ends_at: float | None
    done: float | None
    times_usual: float | None
    cost: float | None
    sentence: str


def expected_of(run: Readable, usual: Usual, done: float | None, now: float) -> Expected:
    """Return what is expected of ``run``, of which so much of the work is ``done``."""
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
    """Return how much of the work of ``groups`` is done, by what tasks took in the ``last`` run.

    Each has ``prefix``, ``tasks``, ``completed`` and ``seconds``; those of the run that goes on
    ``done``, too. None where its tasks are not as those of the last run.
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
