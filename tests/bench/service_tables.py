"""The service's figures beside their goals, as tables in Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from tests.bench.page_tables import is_file, p95, shown
from tests.bench.service import BARE, POSTGRESQL, SQLITE, TWO, Measured

#: What was measured, by the number of clusters in the stock: of a tenth first, then of all.
BySize = dict[int, Measured]

_MOST_SECONDS, _MOST_GROWTH = 0.1, 1.5

#: Tells of a value of a kind of service whether it is as it should be; None where nothing is asked.
Check = Callable[[str, float], bool | None]
Value = Callable[[Measured, str], float | None]


def overview(measured: BySize) -> str:
    """Return the figures that have a goal, and what explains them. Files to take away have none."""

    def on(kind: str, reached: Callable[[float], bool]) -> Check:
        return lambda of, value: reached(value) if of == kind else None

    def nothing(_kind: str, _value: float) -> None:
        return None

    kinds = [kind for kind in (SQLITE, POSTGRESQL) if kind in next(iter(measured.values()))]
    rows: list[tuple[str, str, Value, str, Check]] = [
        (
            "heartbeats/s", "≥ 1,500 on SQLite", _median("beats"), ",.0f",
            on(SQLITE, lambda value: value >= 1500),
        ),
        # 1,500 of the 2,150 of the prototype that the goal was set by.
        (
            "against a bare prototype's", "≥ 0.7 on SQLite", _ratio(SQLITE, BARE, told_of=SQLITE),
            ".2f", on(SQLITE, lambda value: value >= 0.7),
        ),
        (
            "against SQLite's", "≥ 0.5", _ratio(POSTGRESQL, SQLITE, told_of=POSTGRESQL), ".2f",
            on(POSTGRESQL, lambda value: value >= 0.5),
        ),
        (
            "two processes against one", "> 1", _ratio(TWO, POSTGRESQL, told_of=POSTGRESQL), ".2f",
            on(POSTGRESQL, lambda value: value > 1),
        ),
        ("the service's processor, ms each", "", _thousandth("beats, service"), ".2f", nothing),
        ("the database server's, ms each", "", _thousandth("beats, database"), ".2f", nothing),
        ("metric points/s", "", _median("points"), ",.0f", nothing),
        (
            "bytes on disk per point", "≤ 26 on SQLite", _median("bytes"), ".1f",
            on(SQLITE, lambda value: value <= 26),
        ),
        (
            "slowest page or list, p95, ms", "≤ 100", _slowest, ".0f",
            lambda _, value: value <= 1000 * _MOST_SECONDS,
        ),
    ]  # fmt: skip
    lines = _head(["", "goal"], measured, kinds)
    for what, goal, value, form, check in rows:
        cells = []
        for kind in kinds:
            values = [value(found, kind) for found in measured.values()]
            cells += [_shown(kind, one, form, check) for one in values]
            cells.append(_growth(values))
        lines.append(_line(what, goal, *cells))
    cells = []
    for kind in kinds:
        growths = _growths(measured, kind)
        grown = max(growths[what] for what in growths if not is_file(what))
        mark = "" if grown <= _MOST_GROWTH else " ✗"
        cells += [""] * len(measured) + [f"{grown:.2f}{mark}"]
    lines.append(_line("the page or list that grows most, median", f"≤ {_MOST_GROWTH}", *cells))
    return "\n".join(lines)


def questions(measured: BySize) -> str:
    """Return how long each page and list took: median and 95th percentile, in milliseconds."""
    kinds = [kind for kind in (SQLITE, POSTGRESQL) if kind in next(iter(measured.values()))]
    growths = {kind: _growths(measured, kind) for kind in kinds}
    lines = _head(["page or list, ms: median, p95"], measured, kinds)
    for what in next(iter(measured.values()))[SQLITE]["asked"]:
        most, growth = (math.inf,) * 2 if is_file(what) else (_MOST_SECONDS, _MOST_GROWTH)
        cells = []
        for kind in kinds:
            for found in measured.values():
                seconds = found[kind]["asked"][what]
                late = p95(seconds)
                mark = "" if late <= most else " ✗"
                cells.append(f"{1000 * statistics.median(seconds):.1f}, {1000 * late:.1f}{mark}")
            mark = "" if growths[kind][what] <= growth else " ✗"
            cells.append(f"{growths[kind][what]:.2f}{mark}")
        lines.append(_line(shown(what), *cells))
    return "\n".join(lines)


def _head(first: list[str], measured: BySize, kinds: Iterable[str]) -> list[str]:
    titles = [*first]
    for kind in kinds:
        titles += [f"{kind}, {size:,} clusters" for size in measured] + ["×"]
    return [_line(*titles), _line(*["---"] * len(first), *["--:"] * (len(titles) - len(first)))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(kind: str, value: float | None, form: str, check: Check) -> str:
    if value is None:
        return ""
    reached = check(kind, value)
    return f"{value:{form}}" + ("" if reached is None else " ✓" if reached else " ✗")


def _growth(values: list[float | None]) -> str:
    first, last = values[0], values[-1]
    return f"{last / first:.2f}" if first and last else ""


def _growths(measured: BySize, kind: str) -> dict[str, float]:
    first, *_, last = (found[kind]["asked"] for found in measured.values())
    return {what: statistics.median(last[what]) / statistics.median(first[what]) for what in first}


def _median(what: str) -> Value:
    return lambda found, kind: statistics.median(found[kind][what])


def _thousandth(what: str) -> Value:
    return lambda found, kind: 1000 * float(statistics.median(found[kind][what])) or None


def _ratio(one: str, other: str, *, told_of: str) -> Value:
    """Compare heartbeats round by round: of ``one`` to ``other``, in the column ``told_of``."""

    def ratio(found: Measured, kind: str) -> float | None:
        if kind != told_of:
            return None
        pairs = zip(found[one]["beats"], found[other]["beats"], strict=True)
        return float(statistics.median(a / b for a, b in pairs))

    return ratio


def _slowest(found: Measured, kind: str) -> float:
    asked: dict[str, Any] = found[kind]["asked"]
    return 1000 * max(p95(seconds) for what, seconds in asked.items() if not is_file(what))
