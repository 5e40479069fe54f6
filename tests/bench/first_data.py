"""How long it takes from ``register()`` to data: the cluster and a series, asked of the API."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import requests

import daskscope
from daskscope import names
from tests.bench.clusters import cluster
from tests.bench.results import Figure
from tests.service_process import ServiceProcess

_PATIENCE = 30.0


def measure(rounds: int) -> list[Figure]:
    """Register ``rounds`` fresh clusters, with default settings, and wait for each one's data."""
    with tempfile.TemporaryDirectory(prefix="first-") as folder:
        with ServiceProcess(Path(folder, "service")) as service:
            token = service.token()
            taken = [_round(Path(folder, str(n)), service.url, token) for n in range(rounds)]
    return [Figure.of_values("register() to first data", taken, "s", goal=2.0)]


def _round(folder: Path, url: str, token: str) -> float:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"
    with cluster(folder) as client:
        began = time.perf_counter()
        registration = daskscope.register(client, endpoint=url, token=token)
        where = {"cluster": registration.cluster_id or "", "metric": names.WORKER_COUNT.name}
        while time.perf_counter() - began < _PATIENCE:
            known = session.get(f"{url}/api/v1/clusters/{registration.cluster_id}", timeout=10)
            series = session.get(f"{url}/api/v1/series", params=where, timeout=10)
            if known.ok and series.ok and series.json()["items"]:
                return time.perf_counter() - began
            time.sleep(0.01)
        raise TimeoutError(f"no data of {registration.cluster_id} within {_PATIENCE:.0f} s")
