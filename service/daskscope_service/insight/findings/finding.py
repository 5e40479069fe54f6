"""What a rule returns: a finding, nothing, or what it could not measure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

#: The gravest first. A notice names a cause that is not worth an alarm.
Severity = Literal["critical", "warning", "notice"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "notice")


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that proves the finding. ``link`` is its anchor on the subject's page, if any."""

    name: str
    value: float
    unit: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """What to do. ``value`` is the number or the setting to use, if any."""

    text: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class SavedMoney:
    """A saving in money, estimated with the cluster's prices."""

    low: float
    high: float
    currency: str
    formula: str


@dataclass(frozen=True, slots=True)
class Saving:
    """What the actions save, and the formula for it.

    ``unit`` is "s", for seconds of the computation's duration, or a currency. ``money`` is the same
    saving in money, None without prices.
    """

    low: float
    high: float
    unit: str
    formula: str
    money: SavedMoney | None = None


@dataclass(frozen=True, slots=True)
class Muted:
    """The mute of a finding. Times are seconds since the epoch."""

    id: str
    reason: str
    until_at: float
    at: float
    by: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause. ``clause`` can follow "Finished in 3 s: "; ``sentence`` stands alone.

    ``seconds`` are the thread-seconds that were lost, None if the cause cost no time that can be
    measured. ``share`` is their share of the computation's thread-seconds. ``cost`` is in
    ``currency``, estimated with the prices of ``price_source``: "cluster", "workspace" or "list".
    ``version`` is that of the rule. ``suppressed_by`` names the rule whose finding explains this
    one. ``muted`` is the mute that covers it.
    """

    rule: str
    severity: Severity
    clause: str
    evidence: tuple[Measure, ...]
    actions: tuple[Action, ...] = ()
    seconds: float | None = None
    share: float | None = None
    cost: float | None = None
    currency: str | None = None
    price_source: str | None = None
    saving: Saving | None = None
    confidence: Literal["high", "medium"] = "high"
    version: int = 1
    suppressed_by: str | None = None
    muted: Muted | None = None

    def numbers(self) -> Iterator[float]:
        """Yield each number that the finding shows."""
        yield from (measure.value for measure in self.evidence)
        yield from (one for one in (self.seconds, self.share, self.cost) if one is not None)
        if self.saving is not None:
            yield from (self.saving.low, self.saving.high)
            if self.saving.money is not None:
                yield from (self.saving.money.low, self.saving.money.high)

    @property
    def sentence(self) -> str:
        """The finding as a sentence of its own."""
        return f"{self.clause[:1].upper()}{self.clause[1:]}."


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """The rule could not judge, because ``what`` was not measured."""

    what: str


Outcome = Finding | None | NotMeasured
