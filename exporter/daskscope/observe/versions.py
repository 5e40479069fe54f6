"""Versions of packages that differ between scheduler, workers and clients.

Each tells the versions of what Dask needs as it connects. Dask warns of a difference once, in a
log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from distributed.scheduler import Scheduler, WorkerState
from distributed.versions import get_versions, scheduler_relevant_packages

from daskscope.protocol import MAX_NAME, Mismatch

#: The version of a package that is not there.
NONE = "none"

#: Clients that are asked, and packages and versions of one that are told.
MAX_CLIENTS, MAX_PACKAGES, MAX_VERSIONS = 100, 20, 10
#: Characters of a version.
MAX_VERSION = 50

#: Packages and their versions.
_Versions = tuple[tuple[str, str], ...]


class Versions:
    """Counts the workers by their versions, as they come and go."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._own = dict(_read(get_versions()))
        self._of: dict[str, _Versions] = {}
        # Most workers have the same versions: how many have which.
        self._workers: Counter[_Versions] = Counter()

    def added(self, worker: WorkerState) -> None:
        """Count a worker."""
        self.removed(worker.address)
        versions = _read(worker.versions)
        self._of[worker.address] = versions
        self._workers[versions] += 1

    def removed(self, address: str) -> None:
        """Do not count it any more."""
        versions = self._of.pop(address, None)
        if versions is None:
            return
        self._workers[versions] -= 1
        if not self._workers[versions]:
            del self._workers[versions]

    def mismatches(self) -> tuple[Mismatch, ...]:
        """Return the packages of which not all have the same version.

        As for Dask, what only runs tasks, such as numpy, may be missing or differ on the scheduler.
        """
        clients = Counter(
            versions
            for client in islice(self._scheduler.clients.values(), MAX_CLIENTS)
            if (versions := _read(client.versions))
        )
        workers = Counter({versions: n for versions, n in self._workers.items() if versions})
        told = {*self._own, *(name for all in (*workers, *clients) for name, _ in all)}
        found = []
        for package in sorted(told):
            own = self._own.get(package, NONE)
            of_workers, of_clients = _of(package, workers), _of(package, clients)
            different = {*of_workers, *of_clients}
            if package in scheduler_relevant_packages:
                different.add(own)
            if len(different) > 1:
                found.append(Mismatch(package, own, of_workers, of_clients))
        return tuple(found[:MAX_PACKAGES])


def _of(package: str, among: Counter[_Versions]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for versions, count in among.items():
        found[dict(versions).get(package, NONE)] += count
    return dict(found.most_common(MAX_VERSIONS))


def _read(told: Mapping[str, Any] | None) -> _Versions:
    # It comes from other processes, of whatever version.
    packages = (told or {}).get("packages")
    if not isinstance(packages, Mapping):
        return ()
    return tuple(sorted(_texts(packages.items())))


def _texts(items: Iterable[tuple[Any, Any]]) -> Iterable[tuple[str, str]]:
    for name, version in islice(items, 2 * MAX_PACKAGES):
        # Python's own is told with what kind of a release it is.
        text = NONE if version is None else str(version).removesuffix(".final.0")
        yield str(name)[:MAX_NAME], text[:MAX_VERSION]
