"""Clusters and computations as pages, the API and CSV show them: made once, and never changed.

Their fields are those of the rows that clusters sent, what the service knows beside, and what
:mod:`daskscope_service.queries` makes of both.
"""

from __future__ import annotations

from collections.abc import Mapping

from daskscope_service.db.readable import Item
from daskscope_service.db.row_types import ClusterRow, ComputationRow, ListedClusterRow


class ClusterState(ListedClusterRow, frozen=True):
    """A cluster with its verdict, and with its prices or those that hold in its workspace."""

    status: str
    sentence: str
    duration: float
    price_source: str | None


class ClusterInQuestion(ClusterState, frozen=True):
    """A running or silent cluster, with how many workers it lost in the last day."""

    losses: int


class ListedCluster(ClusterState, frozen=True):
    """A cluster in a list of many: with how much happened on it, and what is named first of it."""

    computations: int
    failures: int
    cause: Item | None

    @property
    def idle_share(self) -> float | None:
        """The share of the threads' time in which they were idle."""
        return idle_share(self.worker_seconds)


class ClusterView(ClusterRow, frozen=True):
    """A cluster with all that is known of it."""

    status: str
    sentence: str
    duration: float
    computations: int
    failures: int
    cause: Item | None
    price_source: str | None


class ComputationView(ComputationRow, frozen=True):
    """A computation with its verdict, its name, its code, and the finding that is named first.

    ``status`` is ``lost`` where its cluster went away under it. ``call`` is the statement that set
    it going, None where it is not known; ``title`` is what a person recognises it by, "" where
    there is nothing.
    """

    cluster_name: str
    done: int
    sentence: str
    duration: float
    silence: float
    call: str | None
    title: str
    cause: Item | None


class ComputationDetail(ComputationView, frozen=True):
    """A computation with its task groups, its failures, and the code in its ``frames``.

    Each of ``frames`` has ``text``, ``first_line`` and ``cut`` of its code: None where it was not
    sent; and ``unreadable`` where it cannot be decrypted. Of very many task groups or failures only
    some are there: ``more_task_groups`` and ``more_failures`` say so.
    """

    task_groups: list[Item]
    more_task_groups: bool
    failures: list[Item]
    more_failures: bool


def idle_share(worker_seconds: Mapping[str, float]) -> float | None:
    """Return the share of ``idle`` in all threads' time; None where there was none."""
    whole = sum(worker_seconds.values())
    return worker_seconds.get("idle", 0.0) / whole if whole else None
