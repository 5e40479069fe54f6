"""How long the tests took when that was last recorded, in ``tests/durations.json``.

Groups (``tests/groups.py``) start in the order of their time, the longest first, so that no
process is left with a long one at the end. A test that takes longer than ``QUICK`` runs among the
slow ones.
``./dev test --durations`` records both anew.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.groups import group_of

FILE = Path(__file__).with_name("durations.json")

#: Seconds that a quick test may take, without what it shares with others: fixtures are not counted.
QUICK = 1.0


@dataclass
class Durations:
    """Seconds of each group with its fixtures, and of each test that is not quick."""

    groups: Counter[str] = field(default_factory=Counter)
    tests: Counter[str] = field(default_factory=Counter)

    def rank(self, group: str) -> tuple[float, str]:
        """Return what to sort a group by. One that was never recorded is first: it may be long."""
        return -self.groups.get(group, float("inf")), group


def read() -> Durations:
    """Return what was recorded; nothing where nothing was."""
    if not FILE.exists():
        return Durations()
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    return Durations(Counter(recorded["groups"]), Counter(recorded["tests"]))


def write(durations: Durations) -> None:
    """Write them, one line for each group and test."""
    tests = {test: took for test, took in durations.tests.items() if took > QUICK}
    recorded = {
        name: {of: round(took, 1) for of, took in sorted(seconds.items())}
        for name, seconds in (("groups", durations.groups), ("tests", tests))
    }
    FILE.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


class Recorder:
    """Adds up the seconds of tests and of their groups, and writes them when all tests have run."""

    def __init__(self) -> None:
        self._durations = Durations()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one test's set-up, call or end."""
        self._durations.groups[group_of(report.nodeid)] += report.duration  # type: ignore[assignment]
        if report.when == "call":
            self._durations.tests[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write what was recorded."""
        write(self._durations)
