"""Real runs, replayed: each sick one's cause is named first, and no healthy one sets anything off.

``workloads/record`` recorded them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from tests.browser.fixtures.tape import BEATS, Sent, load, send_again
from tests.insight.workloads.kinds import KINDS, TAPES, Kind
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

RECORDED = sorted(
    (name, interval)
    for name, kind in KINDS.items()
    for interval in kind.intervals
    if (TAPES / f"{name}.{interval}.gz").exists()
)

#: How long ago a cluster that was killed sent its last heartbeat: it is lost.
_KILLED_AGO, _CLOSED_AGO = 1800.0, 120.0


def subject_of(kind: Kind, tape: list[Sent], cluster_id: str) -> str:
    """Return the id of what the workload is about."""
    if kind.subject == "cluster":
        return cluster_id
    beats = [json.loads(sent.body) for sent in tape if sent.path == BEATS]
    computations: dict[str, Any] = {
        one["id"]: one for beat in beats for one in beat.get("computations", ())
    }
    order = "tasks" if kind.subject == "largest" else "started_at"
    last: str = max(computations.values(), key=lambda one: one[order])["id"]
    return last


@pytest.mark.parametrize(("name", "interval"), RECORDED)
def test_the_cause_of_a_real_run_is_named_first(
    shared_service: ServiceProcess, name: str, interval: int
) -> None:
    kind = KINDS[name]
    workspace = f"workload-{name.replace('_', '-')}-{interval}"
    tape = load(f"{name}.{interval}", TAPES)
    ago = {"live": None, "killed": _KILLED_AGO, "closed": _CLOSED_AGO}[kind.ends]
    cluster_id = send_again(shared_service, tape, ago, workspace)
    answer = requests.get(
        f"{shared_service.url}/api/v1/findings/{subject_of(kind, tape, cluster_id)}",
        headers={"Authorization": f"Bearer {shared_service.token(workspace=workspace)}"},
        timeout=30,
    )
    assert answer.ok, answer.text
    found = answer.json()
    named = [one["rule"] for one in found["findings"] if one["suppressed_by"] is None]
    if kind.cause is None:
        assert named == [], found["headline"]
    else:
        assert named[:1] == [kind.cause], (found["headline"], found["not_measured"])
