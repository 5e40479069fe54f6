"""Two clusters whose telemetry went through the real collector into a real InfluxDB.

One did some of everything (``tests/stack/run.py``). The other is of another person and workspace,
has GPUs, and what it has to tell is more than it may.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import dask
import pytest
import requests
from distributed import Client, Scheduler, SpecCluster, Worker, wait
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

import daskscope
import daskscope.config  # its defaults must be there before anything is set for a while
from daskscope import names
from daskscope_service.findings.otlp_events import event_of
from tests.exporter.everywhere import counted_everywhere
from tests.patience import wait_until
from tests.ports import free_port
from tests.stack.asking import Database, Shown
from tests.stack.collector import Collector
from tests.stack.influxdb import InfluxDB
from tests.stack.run import emitters, fail, log, work

WORKSPACE = "otherspace"
PERSON = "bob"

#: What a worker with a GPU tells, as Dask does.
_GPU: dict[str, Any] = {
    "metrics": {
        "gpu_utilization": lambda worker: 40,
        "gpu_memory_used": lambda worker: 3 * 1024**3,
        "gpu-memory-total": lambda worker: 8 * 1024**3,
    }
}


@dataclass(frozen=True, slots=True)
class Two:
    """Both clusters' ids, when the first began and the second ended, and their telemetry."""

    first: str
    second: str
    since: float
    until: float
    database: Database

    def shown(self, step: int) -> Shown:
        """Return the time in which they lived, and ten minutes before."""
        return Shown(self.since - 600, self.until, step)


def log_an_exception(number: int) -> int:
    import logging

    try:
        fail(number)
    except ValueError:
        logging.getLogger("distributed.mine").exception("it failed")
    return number


def second_cluster(collector: Collector, database: InfluxDB) -> str:
    """Run the second cluster; return its id once the collector has all of it."""
    settings = {
        "daskscope.interval": "200ms",
        "daskscope.workspace": WORKSPACE,
        "daskscope.token": "dsk_of_no_service",
        "daskscope.prices": {"currency": "EUR", "worker": 2.0},
        "daskscope.traces.max-spans-per-second": 1,
        # Nobody is there: requests fail.
        "daskscope.endpoint": f"http://127.0.0.1:{free_port()}",
    }
    before = emitters()
    options = {"nthreads": 1, "memory_limit": 1024**3, **_GPU}
    with pytest.MonkeyPatch.context() as patch, dask.config.set(settings):
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("LOGNAME", PERSON)
        with (
            counted_everywhere(),
            SpecCluster(
                workers={0: {"cls": Worker, "options": options}},
                scheduler={
                    "cls": Scheduler,
                    "options": {"host": "127.0.0.1", "dashboard_address": ":0"},
                },
            ) as cluster,
            Client(cluster) as client,
        ):
            cluster_id = str(daskscope.register(client, name="other").cluster_id)
            for _ in range(4):
                wait(client.map(work, range(20), pure=False))
                wait(client.map(fail, range(2), pure=False))
                wait(client.map(log, range(2), pure=False))
                time.sleep(0.5)  # rates want more than one point
            wait(client.map(log_an_exception, range(2)))
            waiting = client.submit(time.sleep, 3600)
            wait_until(lambda: client.processing())
            waiting.cancel()
            wait_until(lambda: _told(database, names.SEND_FAILURES, cluster_id))
            wait_until(lambda: _told(database, names.DROPPED, cluster_id))
    wait_until(lambda: emitters() <= before)
    return cluster_id


def send_finding(collector: Collector, cluster_id: str) -> None:
    """Send what a service sends of a finding of the second cluster."""
    finding = {
        "cluster": cluster_id,
        "computation": "c1",
        "rule": "tiny-tasks",
        "severity": "warning",
        "sentence": "Its 15,000 tasks took 0.04 ms each.",
        "seconds": 12.0,
        "cost": 0.5,
        "currency": "EUR",
        "user": PERSON,
        "found_at": time.time(),
    }
    cluster = SimpleNamespace(name="other", host="host")
    event = event_of(WORKSPACE, finding, cluster, pages="http://127.0.0.1")
    requests.post(
        f"{collector.url}/v1/logs",
        data=ExportLogsServiceRequest(resource_logs=[event]).SerializeToString(),
        headers={"Content-Type": "application/x-protobuf"},
        timeout=30,
    ).raise_for_status()


def _told(database: InfluxDB, metric: names.Metric, cluster_id: str) -> Any:
    return database.rows(
        f"""SELECT last(*) FROM "{metric.name}" WHERE "dask.cluster.id" = '{cluster_id}'"""
    )
