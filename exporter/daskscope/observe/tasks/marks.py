"""Stores when how many of a computation's tasks had ended, in a bounded number of marks."""

from __future__ import annotations

#: Marks that are stored. When there are more, every second one is dropped.
MAX_MARKS = 128


class Marks:
    """Stores when every n-th task had ended; n doubles when there are too many marks.

    With :data:`MAX_MARKS`, :meth:`when` is exact to one or two percent of the tasks.
    """

    __slots__ = ("_every", "_marks", "_next", "count")

    def __init__(self) -> None:
        #: How many tasks have ended.
        self.count = 0
        self._every = self._next = 1
        self._marks: list[tuple[int, float]] = []

    def ended(self, at: float) -> None:
        """Note that one more task has ended."""
        self.count += 1
        if self.count == self._next:
            self._marks.append((self.count, at))
            if len(self._marks) > MAX_MARKS:
                # The first ones matter least, and the last one stays.
                self._marks = self._marks[::2]
                self._every *= 2
            self._next = self.count + self._every

    def when(self, share: float) -> float | None:
        """Return when that ``share`` of the ended tasks had ended; None after the last mark."""
        wanted = share * self.count
        return next((at for count, at in self._marks if count >= wanted), None)
