"""The operator's price list: what an hour of a machine costs, by its instance type.

It is a CSV file, whose first line names the columns::

    type,price,threads,gib
    m5.large,0.107,2,8
    c5.4xlarge,0.768

``price`` is that of an hour. With ``threads`` or ``gib``, those of the whole machine, workers pay
for their share of it; else they pay for the whole machine.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from daskscope.errors import ConfigurationError
from daskscope.protocol import MAX_NAME, InstanceUse
from daskscope_service.settings import Settings

_HOUR = 3600.0
#: The columns, of which the first two are needed.
_COLUMNS = ("type", "price", "threads", "gib")
#: The most that a number may be, and the most lines that are read.
_MOST, _MOST_LINES = 1e6, 10_000
#: The share of the threads' time that must be of listed types. The rest is of workers that left
#: before they had reported their type, and is priced as the others.
_LEAST_KNOWN = 0.95


@dataclass(frozen=True, slots=True)
class MachinePrice:
    """The price of an hour of a machine that has so many ``threads`` and ``gib`` of memory."""

    price: float
    threads: float | None = None
    gib: float | None = None

    def of(self, use: InstanceUse) -> float:
        """Return what the use of such machines costs."""
        shares = [
            seconds / size
            for seconds, size in ((use.thread_seconds, self.threads), (use.gib_seconds, self.gib))
            if size is not None
        ]
        return self.price * min(max(shares, default=use.seconds), use.seconds) / _HOUR


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of machines by instance type, in one currency."""

    currency: str
    machines: Mapping[str, MachinePrice]

    def cost(self, uses: Sequence[InstanceUse], thread_seconds: float) -> float | None:
        """Return the cost of a cluster of so many ``thread_seconds``.

        None if too little of them is of listed types.
        """
        listed = [one for one in uses if one.type in self.machines]
        known = sum(one.thread_seconds for one in listed)
        if not listed or known < _LEAST_KNOWN * thread_seconds:
            return None
        cost = sum(self.machines[one.type].of(one) for one in listed)
        return cost * max(thread_seconds / known, 1.0) if known else cost


def of(settings: Settings) -> PriceList | None:
    """Return the price list that the settings name, if any. Raises what :func:`read` does."""
    path = settings.price_list
    return None if path is None else read(path, settings.prices_currency)


def read(path: Path, currency: str) -> PriceList:
    """Return the price list in the file ``path``.

    Raises
    ------
    ConfigurationError
        The file cannot be read, or a field is not valid. The message names its line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            # A field in quotes may have several lines: the number is that of the last one.
            lines = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"DASKSCOPE_PRICE_LIST is {path}: {why}") from None
    rows = [(line, [one.strip() for one in row]) for line, row in lines
            if any(map(str.strip, row)) and not row[0].lstrip().startswith("#")]  # fmt: skip
    names = rows[0][1] if rows else []
    if names[:2] != list(_COLUMNS[:2]) or sorted(set(names) & set(_COLUMNS)) != sorted(names):
        line = rows[0][0] if rows else 1
        raise _wrong(path, line, f"the first line must name the columns: {','.join(_COLUMNS)}")
    if len(rows) > _MOST_LINES:
        raise _wrong(path, rows[_MOST_LINES][0], f"a price list has at most {_MOST_LINES:,} lines")
    machines: dict[str, MachinePrice] = {}
    for line, row in rows[1:]:
        if len(row) > len(names):
            raise _wrong(path, line, f"has {len(row)} fields, but the first line {len(names)}")
        fields = dict(zip(names, row, strict=False))
        type = fields["type"]
        if not 0 < len(type) <= MAX_NAME:
            right = f"it must have 1 to {MAX_NAME}"
            raise _wrong(path, line, f"type has {len(type)} characters; {right}")
        if type in machines:
            raise _wrong(path, line, f"type {type!r} has a line already")
        machines[type] = MachinePrice(
            _number(path, line, "price", fields.get("price", ""), least=0.0) or 0.0,
            _number(path, line, "threads", fields.get("threads", "")),
            _number(path, line, "gib", fields.get("gib", "")),
        )
    return PriceList(currency, machines)


def _number(path: Path, line: int, name: str, text: str, *, least: float = 0.001) -> float | None:
    if not text and name != "price":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= _MOST:
        right = f"a number from {least:g} to {_MOST:,.0f}"
        raise _wrong(path, line, f"{name} is {text!r}; it must be {right}")
    return value


def _wrong(path: Path, line: int, what: str) -> ConfigurationError:
    return ConfigurationError(f"DASKSCOPE_PRICE_LIST, {path}, line {line}: {what}")
