"""Joins computations in lists that follow each other and look alike, as those of a loop."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby

from daskscope_service.insight.views import ComputationView

#: As many in a row are shown as one, which can be opened.
_LEAST = 3


def joined(computations: Sequence[ComputationView]) -> list[Sequence[ComputationView]]:
    """Return ``computations`` in their order, in parts: those to be joined are one part.

    They finished without failed runs, and have the same title, user and cluster.
    """
    parts: list[Sequence[ComputationView]] = []
    for _, some in groupby(enumerate(computations), lambda item: _same(*item)):
        part = [computation for _, computation in some]
        parts += [part] if len(part) >= _LEAST else [[one] for one in part]
    return parts


def _same(place: int, computation: ComputationView) -> Hashable:
    if not computation.title or computation.status != "finished" or computation.erred:
        return place
    return computation.cluster, computation.user, computation.title
