"""What Dask reports of one run of a task, and what of it is kept until it is counted.

What is kept of each run is memory that the event loop does not get back at once. And what is made
of it there costs several times what it does in a loop of its own, for Dask's code has filled the
processor's caches. So of a run that ended well, as most do, what is read is kept as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

#: What a worker did of a run, as Dask reports it: a dictionary for each action.
StartStops = Iterable[Mapping[str, Any]] | None
#: What a worker did of a run ("compute", "transfer", …), and from when to when, in epoch seconds.
Action = tuple[str, float, float]
#: A run that ended in memory: when, by the clock that is not set; the worker's address; bytes and
#: type of the result; and what was done.
Run = tuple[float, str | None, int | None, str | None, StartStops]

_action_of = itemgetter("action", "start", "stop")


def actions_of(startstops: StartStops) -> list[Action]:
    """Return the actions of the run that ended.

    A worker that still has a task when it is given it again reports what it did for earlier runs
    as well. The order is that of a run: transfers and reads from disk, the computing, and writes to
    disk of the result.
    """
    actions = list(map(_action_of, startstops or ()))
    if len(actions) < 2:
        return actions
    computed = [place for place, (name, _, _) in enumerate(actions) if name == "compute"]
    if len(computed) < 2:
        return actions
    before, last = computed[-2:]
    return [
        action
        for place, action in enumerate(actions)
        if place >= last or (place > before and action[0] != "disk-write")
    ]
