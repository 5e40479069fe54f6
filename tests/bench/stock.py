"""What a database holds that is as full as DESIGN promises to be quick with.

Time is data here: a cluster starts every 13 minutes, so ten times the clusters are ten times the
time, up to three months of it. Most live for 15 minutes. However long that time is, 250 of them go
on until now, and so does the first of all, which computes once in those 13 minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

from daskscope import names

DAY = 86_400
#: Seconds from one cluster's start to the next one's, and what each has in its life.
EVERY, LIFE, COMPUTATIONS, POINTS = 780, 900, 100, 90
#: Clusters that go on: hundreds run at once.
STANDING = 250

#: How many computations there are for one that has task groups, a failure, an event and so on.
GROUPED, FAILED, EVENTS, LOSSES, PROFILES, LOGS = 10, 100, 9, 5, 30, 10

#: Users, and how many of them have four of five clusters.
USERS, FEW = 40, 4
BUGS = 50

LINES = tuple(
    (metric, value)
    for metric, values in (
        (names.WORKER_COUNT, ("running", "paused")),
        (names.MEMORY_USED, ("managed", "unmanaged", "spilled")),
        (names.TASK_COUNT, ("processing", "memory", "waiting", "queued", "erred")),
    )
    for value in values
)
#: Seconds between two points, and between two of those that are older than a week.
STEP, LONG_STEP, FULL = LIFE // POINTS, 300, 7 * DAY


@dataclass(frozen=True, slots=True)
class Stock:
    """What is in ``workspace`` at ``now``, in whole seconds since the Unix epoch."""

    workspace: str
    clusters: int
    now: int

    @property
    def standing(self) -> int:
        """Of so many clusters one goes on."""
        return max(2, self.clusters // STANDING)

    @property
    def of_short_lived(self) -> int:
        """Computations of all clusters but the first."""
        return (self.clusters - 1) * COMPUTATIONS

    @property
    def computations(self) -> int:
        """Computations of all clusters."""
        return self.of_short_lived + self.long_life // EVERY

    @property
    def long_life(self) -> int:
        """Seconds that the first cluster is up."""
        return self.clusters * EVERY

    @property
    def of_first(self) -> tuple[int, int]:
        """Points of each series of the first cluster: those of a week, and older ones."""
        full = min(self.long_life, FULL)
        return full // STEP, (self.long_life - full) // LONG_STEP

    @property
    def points(self) -> int:
        """Points of all series."""
        return len(LINES) * ((self.clusters - 1) * POINTS + sum(self.of_first))

    def goes_on(self, number: int) -> bool:
        """Return whether the cluster runs until now, or has fallen silent."""
        return number == 0 or number % self.standing == 1


def cluster_id(number: int) -> str:
    """Return a cluster's id: 0 is the first, 1 the newest."""
    return f"Scheduler-{number}"
