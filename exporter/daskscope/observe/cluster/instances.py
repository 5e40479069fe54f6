"""The use of machines by their instance types, such as ``m5.large``.

A worker reports the type of its machine in its heartbeats, so only some seconds after it came. Its
use until then is counted for the type once that is known.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

from distributed.scheduler import WorkerState

from daskscope import protocol
from daskscope.observe.workers.cpu import instance_type_of_worker

#: Instance types that are counted; further ones are not.
MAX_TYPES = 20
#: Workers whose type is looked for at once.
AT_ONCE = 500

_GIB = 1024.0**3


class _Use:
    """The machines, threads and GiB that there are, and their seconds so far.

    Seconds are ``rate × now - offset``: a snapshot costs the same for any number of workers.
    """

    def __init__(self) -> None:
        self._rates = [0.0, 0.0, 0.0]
        self._offsets = [0.0, 0.0, 0.0]

    def change(self, amounts: Iterable[float], at: float, sign: int = 1) -> None:
        """Add ``amounts`` from the time ``at`` on or, with ``sign`` -1, take them away."""
        for place, amount in enumerate(amounts):
            self._rates[place] += sign * amount
            self._offsets[place] += sign * amount * at

    def seconds(self, now: float) -> list[float]:
        """Return the seconds of machines, threads and GiB."""
        pairs = zip(self._rates, self._offsets, strict=True)
        return [max(rate * now - offset, 0.0) for rate, offset in pairs]


class _Host:
    """A machine with workers, by their addresses; ``type`` is "" while it is not known."""

    def __init__(self, since: float, type: str) -> None:
        self.since = since
        self.type = type
        # By address: since when, and the threads and GiB.
        self.workers: dict[str, tuple[float, float, float]] = {}


class Instances:
    """Adds up the use of machines, if it is ``wanted``. Counts in ``drops`` what it leaves out.

    ``default`` is the type of machines that report none.
    """

    def __init__(
        self,
        drops: Counter[str],
        *,
        wanted: bool,
        default: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._drops = drops
        self._wanted = wanted
        self._default = default or ""
        self._clock = clock
        self._hosts: dict[str, _Host] = {}
        self._host_of: dict[str, str] = {}
        # Workers that may report the type of their machine, which is not known yet.
        self._asked: dict[str, WorkerState] = {}
        self._uses: dict[str, _Use] = {}

    def added(self, worker: WorkerState) -> None:
        """Count a worker from now on."""
        if not self._wanted:
            return
        self.removed(worker.address)
        now, address = self._clock(), worker.address
        host = self._hosts.get(worker.host)
        if host is None:
            host = self._hosts[worker.host] = _Host(now, "")
            self._use_of(host.type).change((1, 0, 0), now)
        gib = (worker.memory_limit or 0) / _GIB
        host.workers[address] = (now, worker.nthreads, gib)
        self._host_of[address] = worker.host
        self._use_of(host.type).change((0, worker.nthreads, gib), now)
        if not host.type:
            self._asked[address] = worker

    def removed(self, address: str) -> None:
        """Stop counting the worker."""
        self._asked.pop(address, None)
        name = self._host_of.pop(address, None)
        if name is None:
            return
        now, host = self._clock(), self._hosts[name]
        _, threads, gib = host.workers.pop(address)
        self._use_of(host.type).change((0, threads, gib), now, -1)
        if not host.workers:
            del self._hosts[name]
            self._use_of(host.type).change((1, 0, 0), now, -1)

    def rows(self) -> tuple[protocol.InstanceUse, ...]:
        """Return the use so far by type, those with the most threads' time first."""
        self._look()
        now = self._clock()
        rows = (protocol.InstanceUse(type, *use.seconds(now))
                for type, use in self._uses.items() if type)  # fmt: skip
        return tuple(sorted(rows, key=lambda row: -row.thread_seconds))

    def _look(self) -> None:
        """Look for the types of machines that are not known yet."""
        for address, worker in list(islice(self._asked.items(), AT_ONCE)):
            del self._asked[address]
            host = self._hosts[self._host_of[address]]
            if host.type:
                continue
            reported = instance_type_of_worker(worker)
            if reported is None:
                self._asked[address] = worker  # the last, so that others have a turn
            elif type := reported or self._default:
                self._is_of(host, type)

    def _is_of(self, host: _Host, type: str) -> None:
        """Count what a machine was used so far for its type."""
        if type not in self._uses and len(self._uses) > MAX_TYPES:  # one is for unknown types
            self._drops["instance type"] += 1
            return
        before, since = self._use_of(host.type), self._use_of(type)
        host.type = type
        for sign, use in ((-1, before), (1, since)):
            use.change((1, 0, 0), host.since, sign)
            for at, threads, gib in host.workers.values():
                use.change((0, threads, gib), at, sign)

    def _use_of(self, type: str) -> _Use:
        return self._uses.setdefault(type, _Use())
