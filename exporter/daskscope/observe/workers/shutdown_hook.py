"""A hook that runs before workers are closed or restarted, so that their profiles can be read.

Dask has no such hook: plugins are called after workers have left, and a cluster that closes closes
its workers first. But it sends a request to the scheduler before, so this module wraps the handlers
of these requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from functools import wraps
from typing import Any

from distributed.scheduler import Scheduler

from daskscope.containment import Contained

#: Requests after which workers go, and whether a request without names means all workers.
_REQUESTS = {"retire_workers": False, "restart": True, "restart_workers": True}


class ShutdownHook:
    """Awaits ``before`` with the addresses of workers that are about to go, until :meth:`stop`.

    Exceptions of ``before`` are counted in ``drops``.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        before: Callable[[Collection[str]], Awaitable[None]],
        drops: Counter[str],
    ) -> None:
        self._scheduler = scheduler
        self._before: Callable[[Collection[str]], Awaitable[None]] | None = before
        self._contained = Contained(drops)
        handlers = scheduler.handlers
        self._originals = {name: handlers[name] for name in _REQUESTS if name in handlers}
        self._ours = {name: self._around(name, was) for name, was in self._originals.items()}
        handlers.update(self._ours)

    def stop(self) -> None:
        """Stop calling ``before``."""
        self._before = None
        handlers = self._scheduler.handlers
        for name, ours in self._ours.items():
            # If other code has wrapped it since, ours stays inside it and does nothing.
            if handlers.get(name) is ours:
                handlers[name] = self._originals[name]

    def _around(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        async def handler(*args: Any, **request: Any) -> Any:
            if self._before is not None:
                with self._contained:
                    who = self._who(request, all_others=_REQUESTS[name])
                    if who:
                        await self._before(who)
            return await original(*args, **request)

        return handler

    def _who(self, request: dict[str, Any], *, all_others: bool) -> list[str]:
        named = request.get("workers") or request.get("names")
        workers = self._scheduler.workers
        if named is None:
            # If none are named to be retired, Dask chooses idle ones.
            return list(workers) if all_others else []
        # A request may contain names instead of addresses, and numbers from a command line are
        # strings.
        known = set(map(str, named))
        return [
            address
            for address, worker in workers.items()
            if address in known or str(worker.name) in known
        ]
