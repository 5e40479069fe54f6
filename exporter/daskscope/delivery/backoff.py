"""How long to wait after a failure before sending again."""

from __future__ import annotations

import random
import time

#: The longest pause between two tries, in seconds, unless the other side asks for a longer one.
MAX_PAUSE = 30.0

# Not the program's own numbers: it may have seeded them, and expects those that come then.
_random = random.SystemRandom()


class Backoff:
    """Pauses that double with each failure in a row.

    The first one takes about ``first`` seconds. They are spread, so that a fleet of clusters does
    not come back all at once.
    """

    def __init__(self, first: float) -> None:
        self._first = first
        self._failures = 0
        self._ends = 0.0

    def failed(self, asked: float = 0.0) -> float:
        """Begin a pause after another failure, and return its seconds.

        It takes at least the ``asked`` seconds: what the other side has asked for.
        """
        self._failures += 1
        doubled = self._first * 2.0 ** min(self._failures - 1, 10)
        seconds = max(min(doubled, MAX_PAUSE) * _random.uniform(0.5, 1.0), asked)
        self._ends = time.monotonic() + seconds
        return seconds

    def succeeded(self) -> None:
        """End the pause, and begin with the first one after the next failure."""
        self._failures = 0
        self._ends = 0.0

    def skip(self) -> None:
        """End the pause: what is sent next is not what has failed."""
        self._ends = 0.0

    def remaining(self) -> float:
        """Return how many seconds of the pause are left."""
        return max(self._ends - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Return whether the next try may begin."""
        return self.remaining() == 0.0
