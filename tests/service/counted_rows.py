"""What the service answers about a cluster, as rows that an independent count is held against."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import requests

from tests.exporter.truth import Truth


def assert_service_equals(
    truth: Truth, url: str, token: str, cluster: str, *, row: bool = False
) -> list[Any]:
    """Compare the answers about a cluster with ``truth``; return its computations.

    With its ``row`` too: the threads' time by state and by activity, peaks, what was held and what
    it cost. For clusters that have stopped, and machines that are calm.
    """

    def get(path: str, **parameters: Any) -> Any:
        answer = requests.get(
            f"{url}/api/v1/clusters/{cluster}{path}",
            headers={"Authorization": f"Bearer {token}"},
            params=parameters,
            timeout=30,
        )
        answer.raise_for_status()
        return answer.json()

    ids, cursor = [], None
    while True:
        page = get("/computations", limit=1000, **({"cursor": cursor} if cursor else {}))
        ids += [row["id"] for row in page["items"]]
        if not (cursor := page["next"]):
            break
    computations = [get(f"/computations/{id}") for id in ids]
    truth.assert_equals(
        computations,
        [group for row in computations for group in row["task_groups"]],
        [failure for row in computations for failure in row["failures"]],
    )
    if row:
        found = get("")
        until = datetime.fromisoformat(found["status_at"]).timestamp()
        truth.assert_threads(found["worker_seconds"], until)
        activities = {one["prefix"]: one["seconds"] for one in found["activities"]}
        truth.assert_activities(activities, until, stopped=found["stopped_at"] is not None)
        prices = found["prices"] and found["prices"]["per_hour"]
        truth.assert_status({**found, "at": until}, prices)
    return computations
