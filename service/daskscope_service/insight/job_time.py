"""Finds whether a worker left because its batch job reached the time limit.

A cluster manager ends a job without telling its processes why. Some managers (SLURM since 23.02)
tell a worker in advance when its job will end at the latest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

#: Seconds before the end of its job in which a worker also left with it: clocks differ a little.
_BEFORE = 5.0


def reached_time_limit(deployment: Mapping[str, str], left_at: float) -> bool:
    """Return whether a worker left at or after the end of its job.

    ``deployment`` is what the worker reported about where it ran, unchecked. ``left_at`` is in
    seconds since the Unix epoch.
    """
    return left_at >= _end(deployment.get("slurm.job.end", "")) - _BEFORE


def _end(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return math.inf
