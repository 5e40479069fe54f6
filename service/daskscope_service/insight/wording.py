"""Numbers, sizes and durations as people read them: rounded, with a unit."""

from __future__ import annotations

import ntpath
from collections.abc import Iterable, Mapping

import humanize

from daskscope.protocol import MAX_COUNT


def file_name(path: str) -> str:
    """Return the last part of a path of any operating system."""
    return ntpath.basename(path)


def number(value: float) -> str:
    """Return a count with thousands separated: ``12,345``.

    The databases do not add up more than :data:`MAX_COUNT` exactly.
    """
    if value > MAX_COUNT:
        return f"more than {MAX_COUNT:,}"
    return f"{round(value):,}"


def size(value: float) -> str:
    """Return ``value`` bytes with a binary unit: ``1.5 GiB``."""
    return humanize.naturalsize(value, binary=True, format=_digits(value)).replace("Bytes", "B")


def _digits(size: float) -> str:
    """Return the format of three digits, or of four from 999.5: else that would be 1e+03 MiB."""
    while abs(size) >= 1024:
        size /= 1024
    return "%.3g" if abs(size) < 999.5 else "%.0f"


def short(value: float) -> str:
    """Return a number that need not be whole, with three digits or all before the point."""
    return f"{value:.3g}" if abs(value) < 999.5 else number(value)


def duration(seconds: float) -> str:
    """Return ``seconds`` with two units at most: ``340 ms``, ``12.3 s``, ``4 min 5 s``."""
    if seconds > MAX_COUNT:
        return f"more than {MAX_COUNT // 86400:,} d"
    if seconds <= 0:
        return "0 s"
    if seconds < 0.001:
        return "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for length, unit, part, part_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {unit}" + (f" {rest} {part_unit}" if rest else "")
    return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")


def money(amount: float, currency: str) -> str:
    """Return ``12.30 USD``; small amounts have four digits, and tiny ones are ``< 0.0001 USD``."""
    if amount > MAX_COUNT:  # not exact any more
        return f"more than {MAX_COUNT:,} {currency}"
    if 0 < amount < 0.00005:
        return f"< 0.0001 {currency}"
    digits = 2 if amount >= 0.1 or amount == 0 else 4
    return f"{amount:,.{digits}f} {currency}"


def estimate(sources: Iterable[str | None]) -> str:
    """Return what to call costs with prices from ``sources``; None is a cost without prices.

    daskscope reads no bills, so each cost is an ``estimate``: at list prices if nobody set others.
    """
    known = {source for source in sources if source is not None}
    if known == {"instances"}:
        return "estimate by the price list of machines"
    if known == {"opencost"}:
        return "estimate of OpenCost"
    if "list" not in known:
        return "estimate"
    return "estimate at list prices" if len(known) == 1 else "estimate, some at list prices"


def percent(share: float) -> str:
    """Return a share, 0 to 1, as ``42 %``, with a no-break space."""
    if 0 < share < 0.005:
        return "< 1\N{NO-BREAK SPACE}%"
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def hours(seconds: float) -> str:
    """Return ``seconds`` in hours: ``1,234 h``, ``3.5 h``; ``0 h`` only for zero seconds."""
    value = seconds / 3600
    if 0 < value < 0.05:
        return "< 0.1 h"
    return f"{number(value)} h" if value >= 9.95 else f"{value:.1f} h".replace("0.0 h", "0 h")


def plural(value: int, thing: str) -> str:
    """Return ``1 task`` or ``12,345 tasks``."""
    return f"{number(value)} {thing}{'' if value == 1 else 's'}"


def against(now: float, before: float) -> str:
    """Return how ``now`` compares with ``before``: ``12 % more than``, ``about as much as``."""
    if before <= 0:
        return "nothing"
    change = now / before - 1
    if abs(change) < 0.02:
        return "about as much as"
    if change > 1.5:
        return f"{now / before:.1f} times"
    return f"{percent(abs(change))} {'more' if change > 0 else 'less'} than"


def in_currencies(amounts: Mapping[str, float]) -> str:
    """Return ``12.30 USD and 4.00 EUR``, the largest amount first."""
    return " and ".join(
        money(amount, currency)
        for currency, amount in sorted(amounts.items(), key=lambda one: (-one[1], one[0]))
    )
