"""What the service takes, beside its goals, as a table in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from tests.bench.service import BARE, POSTGRESQL, SQLITE, TWO, Measured
from tests.bench.stack import EMBEDDED, STACK

#: What was measured, by the number of clusters in the stock: of a tenth first, then of all.
BySize = dict[int, Measured]

#: Tells of a value of a kind of service whether it is as it should be; None where nothing is asked.
Check = Callable[[str, float], bool | None]
Value = Callable[[Measured, str], float | None]


def overview(measured: BySize) -> str:
    """Return the figures that have a goal, and what explains them."""

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
        (
            "against a bare prototype's", "", _ratio(SQLITE, BARE, told_of=SQLITE), ".2f", nothing,
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
    ]  # fmt: skip
    titles = ["", "goal"]
    for kind in kinds:
        titles += [f"{kind}, {size:,} clusters" for size in measured] + ["×"]
    lines = [_line(*titles), _line("---", "---", *["--:"] * (len(titles) - 2))]
    for what, goal, value, form, check in rows:
        cells = []
        for kind in kinds:
            values = [value(found, kind) for found in measured.values()]
            cells += [_shown(kind, one, form, check) for one in values]
            cells.append(_growth(values))
        lines.append(_line(what, goal, *cells))
    return "\n".join(lines)


def points(rates: dict[str, list[float]]) -> str:
    """Return how many metric points a second each way stored: :mod:`tests.bench.stack`."""
    against = statistics.median(
        ours / theirs for ours, theirs in zip(rates[EMBEDDED], rates[STACK], strict=True)
    )
    lines = [_line("metric points/s, in turns", "goal", ""), _line("---", "---", "--:")]
    lines += [_line(kind, "", f"{statistics.median(found):,.0f}") for kind, found in rates.items()]
    shown = _shown(EMBEDDED, against, ".2f", lambda _kind, value: value >= 1.2)
    return "\n".join([*lines, _line("ours against theirs", "≥ 1.2", shown)])


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
