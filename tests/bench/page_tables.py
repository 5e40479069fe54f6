"""The pages' figures beside their goals, as tables in Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from tests.bench.pages import Measured, Size

_MOST_SECONDS, _MOST_GROWTH, _MOST_BYTES = 0.1, 1.5, 150_000


def summary(measured: Measured) -> str:
    """Return the figures that have a goal: of all pages and lists, the one that does worst.

    Files to take away have none.
    """
    lines = [_line("", "goal", *measured), _line("---", "---", *["--:"] * len(measured))]
    slowest, grown, largest, disk = [], [], [], []
    for by_size in measured.values():
        _, full = by_size.values()
        latest = {what: p95(full["asked"][what]) for what in full["asked"] if not is_file(what)}
        what = max(latest, key=lambda one: latest[one])
        late = latest[what]
        slowest.append(f"{1000 * late:.0f}{_mark(late, _MOST_SECONDS)} ({what})")
        growths = {what: _growth(by_size, what) for what in latest}
        most = max(growths, key=lambda one: growths[one])
        over = sum(growth > _MOST_GROWTH for growth in growths.values())
        grown.append(
            f"{growths[most]:.2f}{_mark(growths[most], _MOST_GROWTH)} ({most}); {over} of "
            f"{len(growths)} over the goal"
        )
        sizes: dict[str, Size] = {
            what: size for what, size in full["bytes"].items() if _is_page(what)
        }
        heavy = max(sizes, key=lambda one: sizes[one].first_visit)
        weight = sizes[heavy].first_visit
        largest.append(f"{weight / 1000:.0f}{_mark(weight, _MOST_BYTES)} ({heavy})")
        disk.append(f"{full['disk'] / 1e9:.2f}")
    rows = (
        ("slowest, p95, ms", "≤ 100", slowest),
        ("grows most with ten times the data, for as much as it shows, median", "≤ 1.5", grown),
        ("most on a first visit, kB", "≤ 150", largest),
        ("on the disk, GB", "", disk),
    )
    lines += [_line(what, goal, *cells) for what, goal, cells in rows]
    return "\n".join(lines)


def pages(measured: Measured) -> str:
    """Return for each page and list its bytes, and its time in milliseconds on both stocks."""
    head = ["page or list", "kB", "as sent", "first visit"]
    for kind, by_size in measured.items():
        head += [f"{kind}, {size:,} clusters: ms p50, p95" for size in by_size] + ["×"]
    lines = [_line(*head), _line("---", *["--:"] * (len(head) - 1))]
    of_first = list(next(iter(measured.values())).values())[-1]
    for what in of_first["asked"]:
        size: Size = of_first["bytes"][what]
        goals = (math.inf, math.inf) if is_file(what) else (_MOST_SECONDS, _MOST_GROWTH)
        cells = [f"{n / 1000:.1f}" for n in (size.plain, size.sent, size.first_visit)]
        cells[2] += _mark(size.first_visit, _MOST_BYTES if _is_page(what) else math.inf)
        for by_size in measured.values():
            for found in by_size.values():
                seconds = found["asked"][what]
                late = p95(seconds)
                cells.append(
                    f"{1000 * statistics.median(seconds):.1f}, {1000 * late:.1f}"
                    f"{_mark(late, goals[0])}"
                )
            growth = _growth(by_size, what)
            cells.append(f"{growth:.2f}{_mark(growth, goals[1])}")
        lines.append(_line(shown(what), *cells))
    return "\n".join(lines)


def p95(seconds: Sequence[float]) -> float:
    """Return the 95th percentile; of one value, that."""
    return (
        statistics.quantiles(seconds, n=20, method="inclusive")[-1] if seconds[1:] else seconds[0]
    )


def shown(what: str) -> str:
    """Return a page's pattern as code, since it may have angle brackets; and a list's name."""
    rule, comma, more = what.partition(",")
    return f"`{rule}`{comma}{more}" if rule.startswith("/") else what


def is_file(what: str) -> bool:
    """Whether it is a file to take away, which has all of a list: there is no goal for it."""
    return what.partition(",")[0].endswith((".csv", ".html"))


def _is_page(what: str) -> bool:
    return what.startswith("/") and not is_file(what)


def _growth(by_size: dict[int, dict[str, Any]], what: str) -> float:
    """Return how many times as long it takes; where it shows more, for as many bytes of it."""
    first, *_, last = (statistics.median(found["asked"][what]) for found in by_size.values())
    short, *_, long = (found["bytes"][what].plain for found in by_size.values())
    return float(last / first / max(1.0, long / short))


def _mark(value: float, most: float) -> str:
    return "" if value <= most else " ✗"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
