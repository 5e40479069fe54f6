"""A real Dask run that gives the plugin some of everything to tell."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster, wait

import daskscope
import daskscope.config  # its defaults must be there before one run's settings come and go
from daskscope import names
from daskscope.plugin import NAME
from daskscope_service.telemetry.influx_rows import Own
from tests.exporter.truth import Truth
from tests.patience import wait_for_file, wait_until
from tests.service.counted_rows import assert_service_equals
from tests.service_process import ServiceProcess
from tests.stack.collector import Collector
from tests.stack.influxdb import SPANS_DATABASE, InfluxDB

PATIENCE = 120.0
TOPIC = "mine"


@dataclass(frozen=True, slots=True)
class Run:
    """A cluster of the workspace ``default`` that is gone, and where its telemetry is.

    ``service`` has it too: the collector passed it on to there.
    """

    cluster: str
    since: float
    until: float
    collector: Collector
    database: InfluxDB
    service: ServiceProcess


def owned_by(workspace: str, run: Run) -> Own:
    """Return what says that the run's cluster is a workspace's, and of no other."""
    return lambda asking, ids: frozenset({run.cluster} & {*ids} if asking == workspace else ())


def emitters() -> set[threading.Thread]:
    """Return the plugin's threads, here, that still send over OTLP: they may outlast a cluster."""
    return {thread for thread in threading.enumerate() if thread.name == "daskscope-emit"}


def work(number: int) -> int:
    time.sleep(0.02)
    return number + 1


def fail(number: int) -> None:
    raise ValueError(f"no {number}")


def fail_once(marker: str) -> str:
    """Fail the first time that it runs anywhere."""
    with contextlib.suppress(FileExistsError), open(marker, "x", encoding="utf-8"):
        raise OSError("not yet")
    return marker


def big(number: int) -> bytes:
    return os.urandom(4_000_000 + number)


def both(one: bytes, other: bytes) -> int:
    return len(one) + len(other)


def log(number: int) -> int:
    import logging

    logging.getLogger("distributed.mine").warning("number %s is odd", number)
    return number


def run_on(collector: Collector, database: InfluxDB, service: ServiceProcess, folder: Path) -> Run:
    """Run a cluster that sends its telemetry to ``collector``; return once the end has arrived."""
    settings = {
        "daskscope.endpoint": service.url,
        "daskscope.token": service.token(["ingest", "read", "admin"]),
        "daskscope.interval": "200ms",
        "daskscope.events.allow": [TOPIC],
        "daskscope.prices": {"currency": "EUR", "worker": 1.0},
        "daskscope.idle.grace": "200ms",
        "distributed.scheduler.allowed-failures": 0,
        "distributed.worker.memory.target": 0.01,
        "distributed.worker.memory.spill": 0.3,
    }
    began, before = time.time(), emitters()
    with pytest.MonkeyPatch.context() as patch, dask.config.set(settings):
        for variable in [name for name in os.environ if name.startswith("OTEL_")]:
            patch.delenv(variable)
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                memory_limit=600_000_000,
                dashboard_address=":0",
                silence_logs=False,
            ) as cluster,
            Client(cluster) as client,
        ):
            truth = Truth(cluster.scheduler, NAME)
            client.sync(truth.begin)
            registered = daskscope.register(client, name="run")
            assert registered.cluster_id is not None
            _work(client, folder, database)
            daskscope.close(registered.cluster_id)
            wait_until(lambda: cluster.scheduler.status.name == "closed")
            cluster.sync(truth.end)
    wait_until(lambda: emitters() <= before)
    collector.drain()
    cluster_id = str(registered.cluster_id)
    assert _events(database, cluster_id) >= {names.LOG_CLUSTER_STOPPED.name}
    token = str(settings["daskscope.token"])
    assert_service_equals(truth, service.url, token, cluster_id, row=True)
    return Run(cluster_id, began, time.time(), collector, database, service)


def _work(client: Client, folder: Path, database: InfluxDB) -> None:
    wait(client.map(work, range(20)))
    wait(client.map(fail, range(3)))
    client.submit(fail_once, str(folder / "once"), retries=1).result()
    wait(client.map(log, range(3)))
    client.log_event(TOPIC, {"step": 1})
    blobs = client.map(big, range(6))  # more than the workers may hold: some of them go to disk
    wait(client.map(both, blobs, blobs[::-1]))  # and back, and from worker to worker
    del blobs
    # Long enough to be told of while it runs.
    marker = str(folder / "done")
    waiting = client.submit(wait_for_file, marker)
    wait_until(lambda: names.LOG_COMPUTATION_PROGRESS.name in _events(database))
    Path(marker).touch()
    wait(waiting)
    wait(client.submit(os._exit, 1, pure=False))
    wait_until(lambda: names.LOG_WORKER_LOST.name in _events(database))
    wait_until(lambda: len(client.scheduler_info()["workers"]) == 2)
    wait_until(lambda: database.rows('SELECT count(*) FROM "spans"', SPANS_DATABASE))


def _events(database: InfluxDB, cluster: str = ".*") -> set[str]:
    return {
        row["event.name"]
        for row in database.rows(
            f"""SELECT last("body") FROM "logs" WHERE "dask.cluster.id" =~ /{cluster}/
            GROUP BY "event.name" """
        )
    }
