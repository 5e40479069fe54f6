"""How severe a finding is, by the time that was lost."""

from __future__ import annotations

from daskscope_service.insight.findings.evidence import Evidence
from daskscope_service.insight.findings.finding import Severity


def weighed(
    evidence: Evidence, seconds: float, whole: float | None, *, signal: Severity = "warning"
) -> Severity:
    """Return the severity of a finding whose signal is as grave as ``signal``.

    ``seconds`` are the thread-seconds that were lost, of ``whole``. Where they are few it is a
    notice: its page names the cause, and nobody is alarmed.
    """
    limits = evidence.thresholds
    least = max(limits["mass.seconds"], limits["mass.share"] * (whole or 0.0))
    return signal if seconds >= least else "notice"


def has_performance(evidence: Evidence) -> bool:
    """Return whether to look for what made a computation slow.

    Not where it was short, and not where it ended badly before half of its tasks were done: then
    that is what there is to say.
    """
    run = evidence.run
    return (
        run is not None
        and not run.failed_early
        and run.duration >= evidence.thresholds["performance.seconds"]
    )


def share_of(seconds: float, whole: float | None) -> float | None:
    """Return what ``seconds`` are of ``whole``, 0 to 1."""
    return min(seconds / whole, 1.0) if whole else None
