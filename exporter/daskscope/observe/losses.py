"""Workers that left: when, why, and what they had at hand."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed.metrics import time
from distributed.scheduler import WorkerState

from daskscope import protocol
from daskscope.observe.bounded import Bounded, Count

#: Losses that are kept between two beats; beyond it the oldest go, and are counted.
MAX_LOSSES = 500


@dataclass(slots=True)
class _Known:
    # Dask drops its record when the worker leaves; what it held last is still to be read here.
    worker: WorkerState
    since: float
    reason: str = ""
    announced: bool = False


class Losses:
    """Remembers the workers there are, and records those that leave."""

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        self._known: dict[str, _Known] = {}
        self._losses: deque[protocol.WorkerLoss] = deque()
        self._lost = 0
        self._reasons = Bounded(Count, 20, "worker loss reason", drops)

    def added(self, worker: WorkerState) -> None:
        """Remember a worker."""
        self._known[worker.address] = _Known(worker, time())

    def event(self, topic: str, message: Any) -> None:
        """Read from Dask's event log why workers leave: only there it says so."""
        if not isinstance(message, Mapping):
            return
        action = message.get("action")
        if action == "remove-worker" and topic == "all":
            self._removed(message)
        elif action == "closing-worker" and topic in self._known:
            self._known[topic].reason = str(message.get("reason") or "")[: protocol.MAX_NAME]
            self._known[topic].announced = True
        elif topic == "worker-restart-memory" and message.get("worker") in self._known:
            self._known[message["worker"]].reason = "out of memory"

    def take(self) -> tuple[protocol.WorkerLoss, ...]:
        """Return the losses since the last call."""
        losses = tuple(self._losses)
        self._losses.clear()
        return losses

    def by_reason(self) -> dict[str, int]:
        """Return how many workers left, by reason."""
        return {reason: count.value for reason, count in self._reasons.values.items()}

    def _removed(self, message: Mapping[str, Any]) -> None:
        address = str(message.get("worker"))
        known = self._known.pop(address, None)
        if known is None:
            return
        now = time()
        # Dask expects only workers that it retired itself; one that said goodbye was closed too.
        expected = bool(message.get("expected")) or known.announced
        reason = known.reason or ("closed" if expected else "lost connection")
        self._reasons[reason].value += 1
        self._lost += 1
        if len(self._losses) >= MAX_LOSSES:
            self._losses.popleft()
            self._drops["worker loss"] += 1
        self._losses.append(
            protocol.WorkerLoss(
                id=f"{int(now * 1000):x}-{self._lost:x}",
                address=address,
                name=str(known.worker.name)[: protocol.MAX_NAME],
                at=now,
                reason=reason,
                expected=expected,
                processing=len(message.get("processing-tasks") or ()),
                memory_used=known.worker.metrics.get("memory"),
                lifetime=now - known.since,
            )
        )
