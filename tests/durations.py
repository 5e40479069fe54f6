"""How long each group of tests took when that was last recorded, in ``tests/durations.json``.

Groups (``tests/groups.py``) start in the order of their time, the longest first, so that no process
is left with a long one at the end. ``./dev test --durations`` records it anew.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.groups import group_of

FILE = Path(__file__).with_name("durations.json")


def read() -> dict[str, float]:
    """Return the seconds of each group; nothing where none were recorded."""
    if not FILE.exists():
        return {}
    seconds: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8"))
    return seconds


def rank(group: str, seconds: dict[str, float]) -> tuple[float, str]:
    """Return what to sort a group by. One that was never recorded comes first: it may be long."""
    return -seconds.get(group, float("inf")), group


class Recorder:
    """Adds up the seconds of each group, and writes them when all tests have run."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one test's set-up, call or end."""
        self._seconds[group_of(report.nodeid)] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write the file, one line for each group."""
        seconds = {group: round(took, 1) for group, took in sorted(self._seconds.items())}
        FILE.write_text(json.dumps(seconds, indent=1) + "\n", encoding="utf-8")
