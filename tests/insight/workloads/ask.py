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
class Subject:
    """A cluster or, unless that is "", a computation on it."""

    cluster: str
    computation: str


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
    subject = replayed(service, name, tape, workspace, earlier)
    answer = requests.get(
        f"{service.url}/api/v1/findings/{subject.computation or subject.cluster}",
        headers={"Authorization": f"Bearer {service.token(workspace=workspace)}"},
        timeout=30,
    )
    assert answer.ok, answer.text
    found = answer.json()
    named = tuple(one["rule"] for one in found["findings"] if one["suppressed_by"] is None)
    return Concluded(named, found["headline"], found["not_measured"])


def replayed(
    service: ServiceProcess, name: str, tape: list[Sent], workspace: str, earlier: float = 0.0
) -> Subject:
    """Send ``tape`` as :func:`concluded` does; return what the workload is about."""
    kind = KINDS[name]
    ago = _AGO[kind.ends]
    cluster = send_again(service, tape, None if ago is None else ago + earlier, workspace)
    return Subject(cluster, "" if kind.subject == "cluster" else _computation(kind, tape))


def page_of(subject: Subject) -> str:
    """Return the path of the subject's page."""
    path = f"/clusters/{subject.cluster}"
    return f"{path}/computations/{subject.computation}" if subject.computation else path


def _computation(kind: Kind, tape: list[Sent]) -> str:
    beats = [json.loads(sent.body) for sent in tape if sent.path == BEATS]
    computations: dict[str, Any] = {
        one["id"]: one for beat in beats for one in beat.get("computations", ())
    }
    order = "tasks" if kind.subject == "largest" else "started_at"
    last: str = max(computations.values(), key=lambda one: one[order])["id"]
    return last
