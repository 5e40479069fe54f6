"""InfluxDB away, the collector killed, the disk full: nothing is lost, or it is told."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.patience import wait_until
from tests.stack.collector import Collector, into
from tests.stack.influxdb import InfluxDB

pytestmark = pytest.mark.slow

_BEGAN = time.time_ns()  # a database forgets what is old, and at once what is too old

#: Pauses between tries are a tenth of a second, so that a short outage outlasts many tries.
_HASTY = Path(__file__).with_name("hasty.yaml")

#: Tries that fail before an outage is long enough.
_TRIES = 6


def attributes(**values: str) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


RESOURCE = {
    "attributes": [
        {"key": key, "value": {"stringValue": "c"}}
        for key in ("service.namespace", "dask.cluster.id", "unasked.for")
    ]
}


def at(number: int) -> int:
    """Return the nanosecond of something: a millisecond after the one before it."""
    return _BEGAN + number * 10**6


def metrics(number: int) -> dict[str, Any]:
    point = {"timeUnixNano": str(at(number)), "asDouble": float(number)}
    metric = {"name": "m", "gauge": {"dataPoints": [point]}}
    return {"resourceMetrics": [{"resource": RESOURCE, "scopeMetrics": [{"metrics": [metric]}]}]}


def logs(number: int, after: int | None = None) -> dict[str, Any]:
    record = {
        "timeUnixNano": str(at(number if after is None else after)),
        "body": {"stringValue": f"record {number}"},
        "attributes": attributes(**{"event.name": "dask.exception"}),
    }
    return {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [{"logRecords": [record]}]}]}


def long_log(number: int) -> dict[str, Any]:
    """Return a log record that takes some room."""
    body = logs(number)
    record = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    record["attributes"] += attributes(long="x" * 100_000)
    return body


def post(collector: Collector, signal: str, body: dict[str, Any]) -> requests.Response:
    return requests.post(f"{collector.url}/v1/{signal}", json=body, timeout=30)


def send(collector: Collector, number: int) -> bool:
    """Send one point and one log record; tell whether both were taken."""
    return post(collector, "metrics", metrics(number)).ok and (
        post(collector, "logs", logs(number)).ok
    )


def arrived(database: InfluxDB) -> tuple[set[float], set[str]]:
    """Return the points and the log records that are in the database."""
    points = {row["gauge"] for row in database.rows('SELECT gauge FROM "m"')}
    return points, {row["body"] for row in database.rows('SELECT body FROM "logs"')}


def expected(count: int) -> tuple[set[float], set[str]]:
    return set(map(float, range(count))), {f"record {n}" for n in range(count)}


@pytest.fixture
def collector(otelcol: Path, influxdb: InfluxDB, tmp_path: Path) -> Iterator[Collector]:
    folder = tmp_path / "collector"
    files: list[str | Path] = ["base.yaml", into(influxdb), _HASTY]
    with Collector(otelcol, folder, files, influxdb.for_collector) as collector:
        yield collector


def send_until_it_has_failed(collector: Collector, first: int) -> int:
    """Send a point and a record again and again until the collector has tried in vain some more
    times to pass them on; return the number after the last.
    """

    def failed() -> int:
        return collector.part.log.read_text(encoding="utf-8").count("Exporting failed")

    number, before = first, failed()

    def sent() -> bool:
        nonlocal number
        assert send(collector, number)
        number += 1
        return failed() >= before + _TRIES

    wait_until(sent)
    return number


def test_nothing_is_lost_while_influxdb_is_away_and_the_collector_is_killed(
    influxdb: InfluxDB, collector: Collector
) -> None:
    assert send(collector, 0)
    wait_until(lambda: arrived(influxdb) == expected(1))
    influxdb.part.stop()
    # It has tried, and failed: what is kept from now on is kept on disk.
    number = send_until_it_has_failed(collector, 1)
    collector.part.stop("KILL")
    collector.part.start()
    number = send_until_it_has_failed(collector, number)
    influxdb.part.start()
    wait_until(lambda: arrived(influxdb) == expected(number))
    collector.drain()
    assert not any(collector.told("otelcol_exporter_send_failed_log_records_total").values())
    assert not any(collector.told("otelcol_exporter_send_failed_metric_points_total").values())


def test_log_records_that_look_alike_at_the_same_moment_are_all_kept(
    influxdb: InfluxDB, collector: Collector
) -> None:
    for number in range(20):
        assert post(collector, "logs", logs(number, 0)).ok
    wait_until(lambda: arrived(influxdb)[1])
    collector.drain()
    assert arrived(influxdb)[1] == expected(20)[1]


def test_only_documented_attributes_of_a_resource_become_tags(
    influxdb: InfluxDB, collector: Collector
) -> None:
    assert send(collector, 0)
    wait_until(lambda: arrived(influxdb) == expected(1))
    tags = {row["tagKey"] for row in influxdb.rows('SHOW TAG KEYS FROM "m"')}
    assert tags == {"service.namespace", "dask.cluster.id"}


def test_a_full_queue_refuses_what_comes_and_says_so(
    otelcol: Path, influxdb: InfluxDB, tmp_path: Path
) -> None:
    files: list[str | Path] = ["base.yaml", into(influxdb), _HASTY]
    environment = {**influxdb.for_collector, "QUEUE_BYTES": "20000"}
    with Collector(otelcol, tmp_path / "collector", files, environment) as collector:
        assert send(collector, 0)
        wait_until(lambda: arrived(influxdb) == expected(1))
        influxdb.part.stop()
        number = 1
        while (answer := post(collector, "metrics", metrics(number))).ok:
            number += 1
        # Who sent it is told to come again, and whoever watches the collector sees it.
        assert answer.status_code == 503, answer.text
        assert "queue is full" in answer.text
        refused = collector.told("otelcol_exporter_enqueue_failed_metric_points_total")
        assert sum(refused.values()) > 0
        # What it had taken is not lost by that.
        influxdb.part.start()
        wait_until(lambda: expected(number)[0] <= arrived(influxdb)[0])
        wait_until(lambda: send(collector, number))


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system of four megabytes at ``folder``."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_refuses_what_comes_and_says_so(
    otelcol: Path, influxdb: InfluxDB, tmp_path: Path
) -> None:
    folder = tmp_path / "collector"
    files: list[str | Path] = ["base.yaml", into(influxdb), _HASTY]
    with small_disk(folder / "queue"):
        with Collector(otelcol, folder, files, influxdb.for_collector) as collector:
            assert send(collector, 0)
            wait_until(lambda: arrived(influxdb) == expected(1))
            influxdb.part.stop()
            number = 1
            while (answer := post(collector, "logs", long_log(number))).ok:
                number += 1
            assert answer.status_code == 503, answer.text
            assert "no space left on device" in answer.text
            refused = collector.told("otelcol_exporter_enqueue_failed_log_records_total")
            assert sum(refused.values()) > 0
            assert "no space left on device" in collector.part.log.read_text(encoding="utf-8")
            # What it had taken is not lost by that, and it takes more as soon as it can.
            influxdb.part.start()
            wait_until(lambda: expected(number)[1] <= arrived(influxdb)[1])
            wait_until(lambda: post(collector, "logs", long_log(number)).ok)
