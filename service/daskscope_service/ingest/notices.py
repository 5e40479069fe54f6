"""Notices of what a heartbeat reports: computations that failed, and workers that were lost."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from daskscope.protocol import Heartbeat
from daskscope_service.db.data_ownership import failure_notice, loss_notice
from daskscope_service.notifications.wording import computation_failed, worker_lost

#: Seconds for which a failure is news.
_NEWS = 86400.0


def notices_of(beat: Heartbeat, workspace: str, now: float) -> list[dict[str, Any]]:
    """Return the notices for notifications: of recent events, not those from an old spool."""
    id = beat.cluster.id
    given: dict[str, Any] = {"workspace": workspace, "cluster": id, "found_at": now}
    given |= {"severity": None, "seen_at": None}
    failed = [
        given
        | {
            "id": failure_notice(id, c.id),
            "kind": "computation failed",
            "sentence": computation_failed(c, beat.cluster),
            "path": f"/clusters/{id}/computations/{quote(c.id, '')}",
        }
        for c in beat.computations
        if c.status == "erred" and c.stopped_at is not None and c.stopped_at > now - _NEWS
    ]
    lost = [
        given
        | {
            "id": loss_notice(id, w.id),
            "kind": "worker lost",
            "sentence": worker_lost(w, beat.cluster),
            "path": f"/clusters/{id}",
        }
        for w in beat.worker_losses
        if not w.expected and w.at > now - _NEWS
    ]
    return failed + lost
