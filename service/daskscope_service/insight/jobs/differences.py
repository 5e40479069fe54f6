"""Finds what differs between two runs, besides their durations: versions, settings, code, place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskscope_service.db.readable import Readable
from daskscope_service.insight.wording import number, plural, size


@dataclass(frozen=True, slots=True)
class Difference:
    """``what`` was ``before`` and is ``after``; None if it was, or is, not there.

    ``kind`` is "version", "setting", "place", "load", "workers", "data", "shape" or "code".
    """

    kind: str
    what: str
    before: str | None
    after: str | None

    @property
    def words(self) -> str:
        """The difference in short: ``pandas 2.2.3 → 2.3.0``."""
        if self.kind == "code":
            return f"code of {self.what}"
        if self.before is None:
            return f"{self.what} {self.after} (not there before)"
        if self.after is None:
            return f"{self.what} {self.before} (not there any more)"
        return f"{self.what} {self.before} → {self.after}"


def versions(before: Readable, after: Readable) -> list[Difference]:
    """Return the packages, and Python, whose versions differ between two rows of clusters."""
    one, other = before["environment"], after["environment"]
    differing = [
        Difference("version", what, one.get(field), other.get(field))
        for what, field in (("Python", "python"),)
        if one.get(field) != other.get(field)
    ]
    return differing + _of("version", one.get("packages") or {}, other.get("packages") or {})


def settings(before: Readable, after: Readable) -> list[Difference]:
    """Return the settings of daskscope that differ between two rows of clusters."""
    return _of("setting", before["settings"] or {}, after["settings"] or {})


def places(before: Readable, after: Readable) -> list[Difference]:
    """Return how two clusters differ in their host, kind, operating system and processor."""
    differing = [
        Difference("place", what, _text(before[field]), _text(after[field]))
        for what, field in (("scheduler's host", "host"), ("kind of cluster", "kind"))
        if before[field] != after[field]
    ]
    for what, field in (("operating system", "operating_system"), ("processor", "architecture")):
        one, other = before["environment"].get(field), after["environment"].get(field)
        if one != other:
            differing.append(Difference("place", what, one, other))
    return differing


def code_changed(before: Readable, after: Readable) -> bool:
    """Return whether the code around the calls of two runs is known for both, and differs."""
    one = [(frame["code"]) for frame in before["frames"] or []]
    other = [(frame["code"]) for frame in after["frames"] or []]
    return bool(one and other and None not in one + other and one != other)


def changes_in_words(before: Readable, after: Readable) -> list[str]:
    """Return in words how a run's tasks, versions and code differ from those of the run before."""
    words = [one.words for one in versions(before["on"], after["on"])]
    one, other = before["tasks"], after["tasks"]
    if one and not 0.9 <= other / one <= 1.1:
        words.insert(0, f"{number(one)} → {plural(other, 'task')}")
    if code_changed(before, after):
        words.append("other code")
    return words


def memory(before: Readable, after: Readable) -> list[Difference]:
    """Return how the workers' total memory differs, if it does by a tenth or more."""
    one, other = before["memory_limit"], after["memory_limit"]
    if not one or not other or abs(other / one - 1) < 0.1:
        return []
    return [Difference("place", "memory of all workers", size(one), size(other))]


def load(before: Readable, after: Readable) -> list[Difference]:
    """Return how the load of the workers' hosts differs, if it may have slowed a run down.

    The load is the highest of any host, divided by its cores. Up to 1, each process has a core. A
    difference of less than half means little, because hosts report the mean of a minute.
    """
    one, other = before["host_load"], after["host_load"]
    if one is None or other is None or max(one, other) <= 1:
        return []
    if max(one, other) < 1.5 * min(one, other):
        return []
    what = "highest load of a worker's host for each core"
    return [Difference("load", what, f"{one:.1f}", f"{other:.1f}")]


def _of(kind: str, one: Mapping[str, str], other: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(kind, name, one.get(name), other.get(name))
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
