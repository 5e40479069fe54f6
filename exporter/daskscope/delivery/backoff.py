"""Computes how long to wait after a failure before sending again."""

from __future__ import annotations

import random
import time

#: The longest pause between two tries, in seconds, unless the server asks for a longer one.
MAX_PAUSE = 30.0

# Not the global generator: a program that has seeded it expects its sequence unchanged.
_random = random.SystemRandom()


class Backoff:
    """Pauses that double with each failure in a row.

    The first pause takes about ``first`` seconds. Pauses are randomized, so that a fleet of
    clusters does not retry all at once.
    """

    def __init__(self, first: float) -> None:
        self._first = first
        self._failures = 0
        self._ends = 0.0

    def failed(self, asked: float = 0.0) -> float:
        """Begin a pause after a failure, and return its seconds.

        It takes at least ``asked`` seconds, the pause that the server asked for.
        """
        self._failures += 1
        doubled = self._first * 2.0 ** min(self._failures - 1, 10)
        seconds = max(min(doubled, MAX_PAUSE) * _random.uniform(0.5, 1.0), asked)
        self._ends = time.monotonic() + seconds
        return seconds

    def succeeded(self) -> None:
        """End the pause. The next failure begins with the first pause again."""
        self._failures = 0
        self._ends = 0.0

    def skip(self) -> None:
        """End the pause, because the next data to send is not the data that failed."""
        self._ends = 0.0

    def remaining(self) -> float:
        """Return how many seconds of the pause are left."""
        return max(self._ends - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Return whether the next try may begin."""
        return self.remaining() == 0.0
