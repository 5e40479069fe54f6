"""Workers that are about to be closed or restarted, so that they can be asked something before.

Dask has no hook for that: plugins hear of workers that have left, and a cluster that is closed
closes its workers first. But it asks the scheduler before; so the handlers of these requests are
wrapped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from functools import wraps
from typing import Any

from distributed.scheduler import Scheduler

from daskscope.containment import Contained

#: Requests after which workers go, and whether all do that are not named.
_REQUESTS = {"retire_workers": False, "restart": True, "restart_workers": True}


class ShutdownHook:
    """Awaits ``before``, with the addresses of workers that are about to go, until :meth:`stop`.

    What it raises is counted in ``drops``.
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
        """Wait for nobody any more."""
        self._before = None
        handlers = self._scheduler.handlers
        for name, ours in self._ours.items():
            # Someone may have wrapped it after us: then ours stays, harmless, inside theirs.
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
            # Of those that are to be retired without being named, Dask chooses idle ones.
            return list(workers) if all_others else []
        # A cluster names its workers where Dask would have their addresses; on the way from a
        # command line numbers become texts.
        known = set(map(str, named))
        return [
            address
            for address, worker in workers.items()
            if address in known or str(worker.name) in known
        ]
