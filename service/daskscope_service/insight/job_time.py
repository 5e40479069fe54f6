"""Whether a worker left as the time limit of its job was reached.

A cluster manager ends a job without a word to its processes. What a worker knows is when its job
would end at the latest, where the manager says so (SLURM from 23.02 on).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

#: A worker that leaves so many seconds before its job's end left with it: clocks differ a little.
_BEFORE = 5.0


def reached_time_limit(deployment: Mapping[str, str], left_at: float) -> bool:
    """Return whether a worker left at or after the end of its job, in epoch seconds.

    ``deployment`` is what the worker reported of where it ran, whatever it may hold.
    """
    return left_at >= _end(deployment.get("slurm.job.end", "")) - _BEFORE


def _end(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return math.inf
