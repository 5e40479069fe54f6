"""Rounds of a service's background work within a second, for tests that wait for what they do.

A service does them each 5 seconds, and looks at clusters each minute. Rounds cost: a service that
many tests share, most of which wait for none, has the usual ones.
"""

from __future__ import annotations

from daskscope_service import application
from daskscope_service.findings import evaluator
from daskscope_service.notifications import notifier

#: Set in the environment of a service whose rounds are quick.
VARIABLE = "TESTS_QUICK_ROUNDS"

_SECONDS = 0.5


def use() -> None:
    """Have quick rounds in this process."""
    application._ENFORCE_SECONDS = application._NOTIFY_SECONDS = _SECONDS
    application._LAST_USAGE_SECONDS = _SECONDS
    application.SEND_SECONDS = _SECONDS  # type: ignore[attr-defined]
    application.ROUND_SECONDS = application.NAMING_SECONDS = _SECONDS  # type: ignore[attr-defined]
    evaluator._CLUSTER_SECONDS = _SECONDS
    notifier.REST = _SECONDS
