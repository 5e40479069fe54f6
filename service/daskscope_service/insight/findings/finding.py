"""What a rule returns: a finding, nothing, or what it could not measure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

#: From the gravest on. A notice names a cause that is not worth an alarm.
Severity = Literal["critical", "warning", "notice"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "notice")


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that proves the finding. ``link`` is the place on the subject's page, if any."""

    name: str
    value: float
    unit: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """What to do; ``value`` is the number or the setting that it comes to."""

    text: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class SavedMoney:
    """What that is in money: an estimate by the cluster's prices."""

    low: float
    high: float
    currency: str
    formula: str


@dataclass(frozen=True, slots=True)
class Saving:
    """What the action saves: seconds of the computation, or money, by ``unit``; with why.

    ``money`` says it in money in either case, None without prices.
    """

    low: float
    high: float
    unit: str
    formula: str
    money: SavedMoney | None = None


@dataclass(frozen=True, slots=True)
class Muted:
    """Someone has muted it until a time. Times are seconds since the epoch."""

    id: str
    reason: str
    until_at: float
    at: float
    by: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause. ``clause`` follows "Finished in 3 s: " and, as a sentence, stands alone.

    ``seconds`` are the thread-seconds that were lost, None for what is no matter of time;
    ``share`` is what they are of the computation's, ``cost`` what they cost in ``currency``, an
    estimate by the cluster's prices; ``price_source`` says whose those are: "cluster", "workspace",
    "list". ``version`` is the rule's, and grows when what it says changes. ``suppressed_by`` names
    the finding that explains this one; ``muted`` says who has muted it.
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
        """Yield each number that it shows."""
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
    """The rule could not look: ``what`` it needs was not measured."""

    what: str


Outcome = Finding | None | NotMeasured
