"""Figures beside their goals, as a table and as JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

_COLUMNS = "{:<50}{:>8}  {:<15}{:>8}{:>9}  {}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. ``goal`` is the most that it may be, None where there is none.

    ``overall`` is the figure over all rounds together: seldom and large costs, which a median does
    not show, are in it.
    """

    what: str
    median: float
    lower: float
    upper: float
    overall: float
    unit: str = "×"
    goal: float | None = None

    @classmethod
    def of_ratios(
        cls, what: str, ours: Sequence[float], base: Sequence[float], goal: float | None = None
    ) -> Figure:
        """Compare rounds one by one: ``ours[n]`` was measured beside ``base[n]``."""
        ratios = [one / other for one, other in zip(ours, base, strict=True)]
        return cls(what, *_quartiles(ratios), overall=sum(ours) / sum(base), goal=goal)

    @classmethod
    def of_values(
        cls, what: str, values: Sequence[float], unit: str, goal: float | None = None
    ) -> Figure:
        """Sum up values that stand for themselves."""
        return cls(what, *_quartiles(values), overall=statistics.mean(values), unit=unit, goal=goal)

    @property
    def verdict(self) -> str:
        """PASS or over, and nothing where there is no goal."""
        if self.goal is None:
            return ""
        return "PASS" if self.median <= self.goal else "over"


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as lines to read."""
    lines = [_COLUMNS.format("", "median", "quartiles", "overall", "goal", "").rstrip()]
    for figure in figures:
        lines.append(
            _COLUMNS.format(
                figure.what,
                _shown(figure.median, figure.unit),
                f"[{_shown(figure.lower)}–{_shown(figure.upper)}]",
                _shown(figure.overall),
                "" if figure.goal is None else f"≤ {figure.goal:.2f}",
                figure.verdict,
            ).rstrip()
        )
    return "\n".join(lines)


def record(figures: Iterable[Figure], **more: Any) -> dict[str, Any]:
    """Return the figures, and what they were measured on, as plain data."""
    return {**of_machine(), "figures": as_data(figures), **more}


def of_machine() -> dict[str, Any]:
    """Return what figures were measured on, as plain data."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": {name: version(name) for name in ("dask", "distributed", "opentelemetry-sdk")},
    }


def as_data(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    """Return the figures as plain data."""
    return [asdict(figure) | {"verdict": figure.verdict} for figure in figures]


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return median, lower and upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return median, lower, upper


def _shown(value: float, unit: str = "") -> str:
    digits = 3 if abs(value) < 10 else 1
    return f"{value:.{digits}f}" + (f" {unit}" if unit not in ("", "×") else "")
