"""When how many of a computation's tasks had ended: some marks, however many there are."""

from __future__ import annotations

#: Marks that are kept; half of them go when there are more, every second one.
MAX_MARKS = 128


class Marks:
    """Remembers when every so many-th task had ended.

    With :data:`MAX_MARKS` any share of the tasks is known to one or two percent of them.
    """

    __slots__ = ("_every", "_marks", "_next", "count")

    def __init__(self) -> None:
        #: How many have ended.
        self.count = 0
        self._every = self._next = 1
        self._marks: list[tuple[int, float]] = []

    def ended(self, at: float) -> None:
        """Note that one more has ended."""
        self.count += 1
        if self.count == self._next:
            self._marks.append((self.count, at))
            if len(self._marks) > MAX_MARKS:
                # The first ones matter least, and the last one stays.
                self._marks = self._marks[::2]
                self._every *= 2
            self._next = self.count + self._every

    def when(self, share: float) -> float | None:
        """Return by when that ``share`` of those that have ended had; None if that is not known,
        for it was after the last mark.
        """
        wanted = share * self.count
        return next((at for count, at in self._marks if count >= wanted), None)
