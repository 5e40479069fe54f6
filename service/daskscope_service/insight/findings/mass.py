"""How severe a finding is, by the time that was lost, and whether to look for lost time."""

from __future__ import annotations

from daskscope_service.insight.findings.evidence import Evidence
from daskscope_service.insight.findings.finding import Severity


def severity_of(
    evidence: Evidence, seconds: float, whole: float | None, *, signal: Severity = "warning"
) -> Severity:
    """Return ``signal`` as the severity of a finding, or "notice" if little time was lost.

    ``seconds`` of ``whole`` thread-seconds were lost. A notice is shown on the page of its subject,
    but alarms nobody.
    """
    limits = evidence.thresholds
    least = max(limits["mass.seconds"], limits["mass.share"] * (whole or 0.0))
    return signal if seconds >= least else "notice"


def is_worth_profiling(evidence: Evidence) -> bool:
    """Return whether to look for what made a computation slow.

    Do not if it was short, or ended badly before half of its tasks were done: then its end is what
    matters.
    """
    run = evidence.run
    return (
        run is not None
        and not run.failed_early
        and run.duration >= evidence.thresholds["performance.seconds"]
    )


def share_of(seconds: float, whole: float | None) -> float | None:
    """Return the share of ``seconds`` in ``whole``, 0 to 1; None if ``whole`` is 0 or unknown."""
    return min(seconds / whole, 1.0) if whole else None
