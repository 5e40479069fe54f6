"""Places the bars of a comparison's waterfall, from the first run's time to the second's."""

from __future__ import annotations

from dataclasses import dataclass

from daskscope_service.db.scope import Item
from daskscope_service.insight.wording import duration

#: The most parts, the largest, that get bars; smaller shares of the difference get none.
_MOST, _LEAST = 9, 0.005


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """A bar: ``start`` and ``width`` in per cent of the drawing. ``kind``: whole, more or less."""

    words: str
    change: str
    amount: str
    start: float
    width: float
    kind: str


def waterfall_bars(comparison: Item) -> list[WaterfallBar]:
    """Return the bars: the first run, what made the second one longer or shorter, the second."""
    a, b = comparison["a"]["duration"], comparison["b"]["duration"]
    size = max(abs(comparison["seconds"]), 0.01 * max(a, b))
    parts = [one for one in comparison["parts"][:_MOST] if abs(one["seconds"]) >= _LEAST * size]
    rest = comparison["seconds"] - sum(part["seconds"] for part in parts)
    if abs(rest) >= _LEAST * size:
        parts = [*parts, {"words": "all else", "change": "", "seconds": rest}]
    # Parts that add time come first: the bars then stay between the two times where they can.
    parts.sort(key=lambda part: -part["seconds"])
    places, at = [], a
    for part in parts:
        places.append((part, at, at + part["seconds"]))
        at += part["seconds"]
    edges = [0.0, a, b, *(place for _, *both in places for place in both)]
    least, whole = min(edges), (max(edges) - min(edges)) or 1.0

    def step(
        words: str, change: str, amount: str, since: float, until: float, kind: str
    ) -> WaterfallBar:
        low, high = sorted((since, until))
        start = 100 * (low - least) / whole
        return WaterfallBar(
            words, change, amount, round(start, 2), round(100 * (high - low) / whole, 2), kind
        )

    return [
        step("the first run", "", duration(a), 0.0, a, "whole"),
        *(
            step(
                part["words"], part["change"],
                _signed(part["seconds"]),
                since, until, "more" if part["seconds"] > 0 else "less",
            )
            for part, since, until in places
        ),
        step("the second run", "", duration(b), 0.0, b, "whole"),
    ]  # fmt: skip


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "\N{MINUS SIGN}"
    return f"{sign}{duration(abs(seconds))}"
