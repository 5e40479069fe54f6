"""What the service concludes of a workload, out of what its cluster sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import requests

from tests.browser.fixtures.tape import BEATS, Sent, send_again
from tests.insight.workloads.kinds import KINDS, Kind
from tests.service_process import ServiceProcess

#: How long ago a cluster that was killed sent its last heartbeat: it is lost.
_AGO = {"live": None, "killed": 1800.0, "closed": 120.0}


@dataclass(frozen=True, slots=True)
class Concluded:
    """The rules that are named, the first one first; the first sentence; and who could not look."""

    named: tuple[str, ...]
    headline: str
    not_measured: Any


def concluded(
    service: ServiceProcess, name: str, tape: list[Sent], workspace: str, earlier: float = 0.0
) -> Concluded:
    """Send ``tape`` to ``service``, and return what it says of the workload's subject.

    It is as if the cluster, one that has ended, had ended so many seconds ``earlier``.
    """
    kind = KINDS[name]
    ago = _AGO[kind.ends]
    cluster_id = send_again(service, tape, None if ago is None else ago + earlier, workspace)
    answer = requests.get(
        f"{service.url}/api/v1/findings/{_subject(kind, tape, cluster_id)}",
        headers={"Authorization": f"Bearer {service.token(workspace=workspace)}"},
        timeout=30,
    )
    assert answer.ok, answer.text
    found = answer.json()
    named = tuple(one["rule"] for one in found["findings"] if one["suppressed_by"] is None)
    return Concluded(named, found["headline"], found["not_measured"])


def _subject(kind: Kind, tape: list[Sent], cluster_id: str) -> str:
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
