"""What failed or was lost recently; new failures first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from daskscope_service.insight.views import ExceptionGroup, RecentGroup
from daskscope_service.insight.wording import number, plural

#: The words for each kind of incident besides exceptions: singular and plural.
_WORDS = {
    "computation failed": ("computation failed", "computations failed"),
    "worker lost": ("worker was lost", "workers were lost"),
    "cluster silent": ("cluster fell silent", "clusters fell silent"),
}


@dataclass(frozen=True, slots=True)
class News:
    """Recent ``groups`` of failures; ``sentence`` counts all incidents, "" if there were none."""

    groups: list[RecentGroup]
    sentence: str


def news(
    groups: Sequence[ExceptionGroup],
    known: Collection[str],
    since: float,
    counts: Mapping[str, int],
) -> News:
    """Return the failures since ``since``; those that were never seen before come first.

    ``known`` are the fingerprints that were seen before ``since``; ``counts`` holds the number of
    incidents of each other kind.
    """
    shown = [
        RecentGroup.of(
            structs.asdict(group)
            | {"new": group.fingerprint not in known and group.first_at >= since}
        )
        for group in groups
    ]
    shown.sort(key=lambda group: (not group.new, -group.last_at, group.fingerprint))
    fresh = sum(group.new for group in shown)
    parts = []
    if fresh:
        parts.append(f"{plural(fresh, 'new kind')} of exception")
    if old := len(shown) - fresh:
        parts.append(f"{plural(old, 'kind')} of exception seen before")
    for kind, (one, many) in _WORDS.items():
        if count := counts.get(kind, 0):
            parts.append(f"{number(count)} {one if count == 1 else many}")
    return News(shown, ", ".join(parts) + "." if parts else "")
