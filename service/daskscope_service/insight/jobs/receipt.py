"""The receipt of a repair: what a job has saved since it became faster and lost a finding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from daskscope_service.db.readable import Readable
from daskscope_service.insight.jobs.summary import Summary, has_passed
from daskscope_service.insight.wording import money, percent

#: The rule and the saving of each finding of a run, by the run's cluster and id.
Findings = Mapping[tuple[str, str], Collection[tuple[str, Readable | None]]]

#: The most runs on each side of the change that are compared, and the least share of the runs
#: before that must have had a finding.
MOST_LOOKED_AT, _HAD_IT = 20, 0.5


@dataclass(frozen=True, slots=True)
class Receipt:
    """Since ``at``, runs take less time, by ``share``, and the findings of ``rules`` are gone.

    ``saved`` is the money saved in each run, None without prices in a single currency.
    ``expected_low`` and ``expected_high`` are the savings, as shares, that the findings predicted;
    None if they predicted none.
    """

    at: float
    cluster: str
    computation: str
    rules: Sequence[str]
    share: float
    saved: float | None
    currency: str | None
    price_source: str | None
    expected_low: float | None
    expected_high: float | None
    sentence: str


def sides(
    runs: Sequence[Readable], summary: Summary
) -> tuple[Sequence[Readable], Sequence[Readable]]:
    """Return the last passed runs before the last change, and the newest passed runs after it.

    Both are empty unless the last change made runs faster.
    """
    if not summary.changes or summary.changes[-1].change.share >= 0:
        return (), ()
    passed = [run for run in runs if has_passed(run)]
    change = summary.changes[-1].change
    first = max(change.index - min(change.runs_before, MOST_LOOKED_AT), 0)
    since = passed[change.index :][-MOST_LOOKED_AT:]
    return passed[first : change.index], since


def receipt_of(runs: Sequence[Readable], summary: Summary, findings: Findings) -> Receipt | None:
    """Return the receipt of a job; None if it did not become faster, or no finding is gone."""
    before, since = sides(runs, summary)
    if not before:
        return None
    had: dict[str, list[tuple[float, float]]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for run in before:
        for rule, saving in findings.get((run["cluster"], run["id"]), ()):
            counts[rule] += 1
            if saving is not None and saving["unit"] == "s":
                had[rule].append(
                    (saving["low"] / run["duration"], saving["high"] / run["duration"])
                )
    now = {rule for run in since for rule, _ in findings.get((run["cluster"], run["id"]), ())}
    gone = sorted(
        rule for rule, count in counts.items() if count >= _HAD_IT * len(before) and rule not in now
    )
    if not gone:
        return None
    last = summary.changes[-1]
    said = [
        (median(low for low, _ in had[rule]), median(high for _, high in had[rule]))
        for rule in gone
        if had[rule]
    ]
    # Several findings may be about the same time, so take only the one that predicted most.
    low, high = max(said, key=lambda one: one[1], default=(None, None))
    saved, currency, source = _money(before, since)
    share = -last.change.share
    return Receipt(
        at=last.at,
        cluster=last.cluster,
        computation=last.computation,
        rules=gone,
        share=share,
        saved=saved,
        currency=currency,
        price_source=source,
        expected_low=low,
        expected_high=None if high is None else min(high, 1.0),
        sentence=_sentence(last.at, share, gone, saved, currency, low, high),
    )


def _money(
    before: Sequence[Readable], since: Sequence[Readable]
) -> tuple[float | None, str | None, str | None]:
    runs = [*before, *since]
    if any(run["cost"] is None for run in runs) or len({run["currency"] for run in runs}) != 1:
        return None, None, None
    saved = median(run["cost"] for run in before) - median(run["cost"] for run in since)
    return saved, since[-1]["currency"], since[-1]["price_source"]


def _sentence(
    at: float,
    share: float,
    gone: Sequence[str],
    saved: float | None,
    currency: str | None,
    low: float | None,
    high: float | None,
) -> str:
    day = datetime.fromtimestamp(at, UTC)
    text = f"Saves {percent(share)} since {day.day} {day:%B}"
    if saved is not None and currency is not None and saved > 0:
        text += f", {money(saved, currency)} a run"
    if high is not None:
        most = percent(min(high, 1.0))
        expected = f"{percent(low)} to {most}" if low else f"up to {most}"
        text += f"; {expected} was expected"
    rules = " and ".join(rule.replace("-", " ") for rule in gone)
    return f"{text}. Gone since then: {rules}."
