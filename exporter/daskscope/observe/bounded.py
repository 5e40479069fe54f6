"""Counts by name for a bounded number of names. Further names share one slot, and are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from daskscope.names import OTHER

Value = TypeVar("Value")


class Count:
    """A number that grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Bounded(Generic[Value]):
    """A mapping from names to values that creates missing values, at most ``limit`` of them.

    Further names share the value of ``other``; ``drops[what]`` counts each use of it.
    """

    __slots__ = ("_drops", "_limit", "_make", "_what", "values")

    def __init__(
        self, make: Callable[[], Value], limit: int, what: str, drops: Counter[str]
    ) -> None:
        self.values: dict[str, Value] = {}
        self._make = make
        self._limit = limit
        self._what = what
        self._drops = drops

    def __getitem__(self, name: str) -> Value:
        value = self.values.get(name)
        if value is None:
            if len(self.values) >= self._limit and name != OTHER:
                self._drops[self._what] += 1
                return self[OTHER]
            value = self.values[name] = self._make()
        return value
