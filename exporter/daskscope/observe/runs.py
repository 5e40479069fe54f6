"""What Dask tells of one run of a task, less than it comes with.

What is kept of each until it is counted is memory that the event loop does not get back at once,
and work for the garbage collector. Dask tells it in dictionaries; kept are tuples of what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

#: What a worker did of a run ("compute", "transfer", …), and from when to when, in epoch seconds.
Action = tuple[str, float, float]
#: A run that ended in memory: the worker's address, bytes and type of the result, and its actions.
Finished = tuple[str | None, int | None, str | None, tuple[Action, ...]]

#: Makes an :data:`Action` of what Dask tells of one.
action_of = itemgetter("action", "start", "stop")


def actions_of(details: Mapping[str, Any]) -> Iterator[Action]:
    """Return what was done of the run that Dask tells these ``details`` of."""
    return map(action_of, details.get("startstops") or ())
