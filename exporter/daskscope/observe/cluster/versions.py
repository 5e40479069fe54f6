"""Versions of packages that differ between scheduler, workers and clients.

Workers and clients report the versions of the packages that Dask needs when they connect. Dask logs
a warning about differences once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any

from distributed.scheduler import Scheduler, WorkerState
from distributed.versions import get_versions, scheduler_relevant_packages

from daskscope.protocol import MAX_NAME, Mismatch

#: Stands for the version of a package that is not installed.
NONE = "none"

#: Clients that are compared; packages that are sent; versions that are sent of one package.
MAX_CLIENTS, MAX_PACKAGES, MAX_VERSIONS = 100, 20, 10
#: Most characters of a version.
MAX_VERSION = 50

#: Packages and their versions.
_Versions = tuple[tuple[str, str], ...]


class Versions:
    """Counts the workers by their versions and compares them with scheduler and clients.

    Where no worker, or no client, is left, the last ones count: a cluster that ends loses them, and
    what failed because of their versions is still asked about.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._own = dict(_read(get_versions()))
        self._of: dict[str, _Versions] = {}
        # Workers by their versions: most have the same.
        self._workers: Counter[_Versions] = Counter()
        self._names: set[str] = set()  # of the clients that were there at the last look
        self._clients: dict[str, _Versions] = {}
        self._found: tuple[Mismatch, ...] | None = None

    def added(self, worker: WorkerState) -> None:
        """Count a worker."""
        self.removed(worker.address)
        if not self._of:
            self._workers.clear()
        versions = _read(worker.versions)
        self._of[worker.address] = versions
        self._workers[versions] += 1
        self._found = None

    def removed(self, address: str) -> None:
        """Stop counting the worker."""
        versions = self._of.pop(address, None)
        if versions is None or not self._of:
            return
        self._workers[versions] -= 1
        if not self._workers[versions]:
            del self._workers[versions]
        self._found = None

    def mismatches(self) -> tuple[Mismatch, ...]:
        """Return the packages whose version is not the same everywhere.

        As in Dask, packages that only tasks need, such as numpy, may be missing or differ on the
        scheduler. Runs on the event loop, so it compares only after a worker or client came or
        went.
        """
        clients = dict(islice(self._scheduler.clients.items(), MAX_CLIENTS))
        if clients.keys() != self._names:
            self._names = set(clients)
            read = {name: _read(client.versions) for name, client in clients.items()}
            if any(read.values()):  # Dask has a client of its own, which has no versions
                self._clients = read
                self._found = None
        if self._found is None:
            self._found = self._compared()
        return self._found

    def _compared(self) -> tuple[Mismatch, ...]:
        workers, clients = self._workers, Counter(self._clients.values())
        packages = {*self._own, *(name for all in (*workers, *clients) for name, _ in all)}
        of_workers, of_clients = _by_package(workers, packages), _by_package(clients, packages)
        mismatches = []
        for package in sorted(packages):
            own = self._own.get(package, NONE)
            different = {*of_workers[package], *of_clients[package]}
            if package in scheduler_relevant_packages:
                different.add(own)
            if len(different) > 1:
                few = (
                    dict(of[package].most_common(MAX_VERSIONS)) for of in (of_workers, of_clients)
                )
                mismatches.append(Mismatch(package, own, *few))
        return tuple(mismatches[:MAX_PACKAGES])


def _by_package(
    among: Mapping[_Versions, int], packages: Collection[str]
) -> dict[str, Counter[str]]:
    """Return, by package, how many processes have each version, if they reported versions."""
    by_package: dict[str, Counter[str]] = {package: Counter() for package in packages}
    for versions, count in among.items():
        for package, version in versions:
            by_package[package][version] += count
    all_of_them = sum(count for versions, count in among.items() if versions)
    for of_package in by_package.values():
        lacking = all_of_them - of_package.total()
        if lacking:
            of_package[NONE] += lacking
    return by_package


def _read(reported: Mapping[str, Any] | None) -> _Versions:
    # Other processes sent it, with any version of Dask.
    packages = (reported or {}).get("packages")
    if not isinstance(packages, Mapping):
        return ()
    return tuple(sorted(_texts(packages.items())))


def _texts(items: Iterable[tuple[Any, Any]]) -> Iterable[tuple[str, str]]:
    for name, version in islice(items, 2 * MAX_PACKAGES):
        # Python's own version is reported with its kind of release.
        text = NONE if version is None else str(version).removesuffix(".final.0")
        yield str(name)[:MAX_NAME], text[:MAX_VERSION]
