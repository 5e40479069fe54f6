"""How much a workspace may have stored, and what is said to what is beyond it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from sqlalchemy import select
from werkzeug.test import TestResponse

from daskscope.codec import encode
from daskscope.protocol import Heartbeat
from daskscope_service.accounts import tokens
from daskscope_service.application import close_app, create_app
from daskscope_service.db import schema
from daskscope_service.ingest import cluster_rows, quotas, series_memory
from daskscope_service.ingest.cluster_rows import Labels, UsageDue
from daskscope_service.services import services
from daskscope_service.settings import Settings
from tests import sqlite_template
from tests.patience import wait_until
from tests.service.beats import full_beat, make_beat, make_cluster
from tests.service.conftest import NewDatabase
from tests.service.test_extremes import sign_in
from tests.service.test_otlp import AT


class Service:
    """A service within this process, and a token of its workspace."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self.engine = services(app).engine
        self.quotas = services(app).quotas
        self.token = tokens.create(
            self.engine, workspace="w", label="test", scopes=["ingest", "read"]
        )

    def post(self, path: str, body: bytes, **headers: str) -> TestResponse:
        headers["Authorization"] = f"Bearer {self.token}"
        return self.app.test_client().post(path, data=body, headers=headers)

    def beat(self, beat: Heartbeat) -> TestResponse:
        return self.post("/api/v1/heartbeats", encode(beat))

    def metrics(self, *names: str) -> tuple[int, ExportMetricsServiceResponse]:
        request = ExportMetricsServiceRequest()
        scope = request.resource_metrics.add().scope_metrics.add()
        for name in names:
            point = scope.metrics.add(name=name).gauge.data_points.add(as_double=1.0)
            point.time_unix_nano = 1_700_000_000_000_000_000
        answer = self.post(
            "/v1/metrics",
            request.SerializeToString(),
            **{"Content-Type": "application/x-protobuf"},
        )
        told = ExportMetricsServiceResponse()
        if answer.status_code == 200:
            told.ParseFromString(answer.data)
        return answer.status_code, told

    def sample(self, name: str, **labels: str) -> float:
        """Return the value of a metric of the service's."""
        registry = services(self.app).instruments.registry
        value = registry.get_sample_value(f"daskscope_service_{name}", labels)
        assert value is not None
        return value

    def stored(self, column: Any) -> set[str]:
        with self.engine.connect() as connection:
            return set(connection.execute(select(column)).scalars())


@contextmanager
def serving(data_dir: Path, database_url: str, **limits: int) -> Iterator[Service]:
    settings = Settings(data_dir=data_dir, database_url=database_url, **limits)  # type: ignore[arg-type]
    if not database_url and not any(data_dir.iterdir()):
        sqlite_template.copy_to(data_dir)
    app = create_app(settings)
    try:
        yield Service(app)
    finally:
        close_app(app)


def test_what_is_beyond_a_quota_is_refused_by_name_and_what_is_stored_goes_on(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with serving(tmp_path, new_database(), quota_clusters=1, quota_series=1) as service:
        first, second = make_cluster("first"), make_cluster("second")
        assert service.beat(make_beat(first)).status_code == 200
        assert service.metrics("one")[0] == 200
        client = service.app.test_client()
        sign_in(service.engine, client, "w")
        assert client.get("/settings/workspace").text.count("not counted yet") == 3
        service.quotas.count()
        assert service.sample("workspace_use", workspace="w", quota="clusters") == 1
        assert service.sample("workspace_use", workspace="w", quota="series") == 1

        assert service.beat(make_beat(first, 2)).status_code == 200
        assert service.sample("refused_total", reason="quota") == 0
        refused = service.beat(make_beat(second))
        assert service.sample("refused_total", reason="quota") == 1
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) > 0
        problem = refused.get_json(force=True)
        assert problem["reason"] == "quota of clusters"
        assert "1 clusters" in problem["detail"]
        assert "DASKSCOPE_QUOTA_CLUSTERS" in problem["detail"]
        assert service.stored(schema.cluster.c.id) == {"first"}

        status, told = service.metrics("one", "two", "three")
        assert status == 200
        assert told.partial_success.rejected_data_points == 2
        assert "DASKSCOPE_QUOTA_SERIES" in told.partial_success.error_message
        assert service.sample("refused_total", reason="quota") == 2  # once for a request
        assert service.stored(schema.series.c.metric) == {"one"}

        page = client.get("/settings/workspace").text
        assert page.count("used up") == 3  # both, and what it says below
        assert "DASKSCOPE_QUOTA_BYTES" in page


def test_clusters_and_series_that_come_between_two_counts_count(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with serving(tmp_path, new_database(), quota_clusters=5, quota_series=5) as service:
        service.quotas.count()
        numbers = itertools.count()

        def beat_of_another(_: int = 0) -> int:
            return service.beat(make_beat(make_cluster(f"c{next(numbers)}"))).status_code

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(beat_of_another, range(8)))
        wait_until(lambda: beat_of_another() == 429, what="a refusal")
        there = service.stored(schema.cluster.c.id)
        assert service.beat(make_beat(make_cluster(min(there)), 2)).status_code == 200

        def has_room() -> bool:
            _, told = service.metrics(f"metric_{next(numbers)}")
            return told.partial_success.rejected_data_points == 0

        wait_until(lambda: not has_room(), what="a refusal")
        # What is removed makes room, at the next count.
        with service.engine.begin() as connection:
            connection.execute(schema.cluster.delete())
        service.quotas.count()
        assert beat_of_another() == 200


def test_quotas_hold_for_what_is_received_at_the_same_moment(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with serving(tmp_path, new_database(), quota_clusters=5, quota_series=50) as service:
        numbers = itertools.count()

        def send(_: int) -> None:
            name = f"m{next(numbers)}"
            status, _ = service.metrics(*(f"{name}_{number}" for number in range(40)))
            assert status in (200, 429)
            assert service.beat(make_beat(make_cluster(name))).status_code in (200, 429)

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(send, range(24)))
        # As many as there is room for, however many of a request's those are.
        assert len(service.stored(schema.series.c.metric)) == 50
        assert len(service.stored(schema.cluster.c.id)) == 5


def test_a_place_of_what_was_not_stored_is_free_again(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with serving(tmp_path, new_database(), quota_clusters=2, quota_series=2) as service:
        for number in range(5):
            elsewhere = make_cluster(f"e{number}", workspace="another")
            assert service.beat(make_beat(elsewhere)).status_code == 403
        assert service.beat(make_beat(make_cluster("first"))).status_code == 200
        # Of a known cluster, the labels changed.
        for number in range(5):
            renamed = make_cluster("first", tags={"n": str(number)})
            assert service.beat(make_beat(renamed, number + 2)).status_code == 200
        service.quotas.count()
        assert service.beat(make_beat(make_cluster("second"))).status_code == 200
        assert service.beat(make_beat(make_cluster("third"))).status_code == 429


def test_quotas_hold_at_once_after_a_restart(tmp_path: Path, new_database: NewDatabase) -> None:
    database = new_database()
    with serving(tmp_path, database) as service:
        for number in range(3):
            assert service.beat(make_beat(make_cluster(f"c{number}"))).status_code == 200
        assert service.metrics("one", "two", "three")[0] == 200
        token = service.token
    with serving(tmp_path, database, quota_clusters=3, quota_series=3) as service:
        service.token = token
        assert service.beat(make_beat(make_cluster("another"))).status_code == 429
        assert service.beat(make_beat(make_cluster("c0"), 2)).status_code == 200
        _, told = service.metrics("one", "another")
        assert told.partial_success.rejected_data_points == 1


def test_who_has_used_up_their_room_is_told_to_come_again(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with serving(tmp_path, new_database(), quota_bytes=1_000) as service:
        assert service.beat(full_beat()).status_code == 200
        service.quotas.count()

        [room] = [use for use in service.quotas.of("w") if use.kind == "bytes"]
        assert room.used is not None
        assert 1_000 < room.used < 100_000
        refused = service.beat(full_beat())
        assert refused.status_code == 429
        assert "DASKSCOPE_QUOTA_BYTES" in refused.get_json(force=True)["detail"]
        assert service.sample("workspace_use", workspace="w", quota="bytes") == room.used
        before = service.sample("refused_total", reason="quota")
        for path in ("/v1/metrics", "/v1/traces", "/v1/logs"):
            refused = service.post(path, b"", **{"Content-Type": "application/x-protobuf"})
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) > 0
        assert service.sample("refused_total", reason="quota") == before + 3


def test_a_workspace_does_not_grow_without_bound_between_two_estimates(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    most = 200_000
    with serving(tmp_path, new_database(), quota_bytes=most) as service:

        def is_stored(status: int) -> bool:
            assert status in (200, 429)
            return status == 200

        def size() -> int:
            with service.engine.connect() as connection:
                series = len(service.stored(schema.series.c.id))
                return quotas.bytes_of(connection, "w", series)

        service.quotas.count()
        # Beats of one cluster replace its rows. They use up the room until it is looked at.
        one = full_beat()
        beats = 0
        while is_stored(service.beat(one).status_code):
            beats += 1
            assert beats * len(encode(one)) < most + len(encode(one))
        service.quotas.count()
        assert size() < most / 4
        assert is_stored(service.beat(one).status_code)

        # Beats of others stay. They are refused for good once that is so much.
        refused = number = 0
        while refused < quotas._ROUNDS_OF_BYTES:
            service.quotas.count()
            number += 1
            if is_stored(service.beat(full_beat(make_cluster(f"c{number}"))).status_code):
                refused = 0
            else:
                refused += 1
        assert most <= size() < 1.2 * most


def test_names_that_a_request_has_once_and_each_of_its_series_again_count_each_time(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    most = 1_000_000
    with serving(tmp_path, new_database(), quota_bytes=most) as service:
        requests = 0
        while True:
            request = ExportMetricsServiceRequest()
            scope = request.resource_metrics.add().scope_metrics.add()
            metric = scope.metrics.add(name=f"{requests}-{'n' * 1_000}")
            for n in range(100):
                point = metric.gauge.data_points.add(time_unix_nano=AT, as_double=1.0)
                point.attributes.add(key="n").value.int_value = n
            answer = service.post(
                "/v1/metrics",
                request.SerializeToString(),
                **{"Content-Type": "application/x-protobuf"},
            )
            if answer.status_code == 429:
                break
            assert answer.status_code == 200
            requests += 1
            assert requests < 20
        with service.engine.connect() as connection:
            size = quotas.bytes_of(connection, "w", 100 * requests)
        assert most / 2 < size < 1.6 * most


def test_nothing_is_remembered_of_what_was_not_stored(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with serving(tmp_path, new_database()) as service:
        request = ExportMetricsServiceRequest()
        scope = request.resource_metrics.add().scope_metrics.add()
        for number in range(50):
            scope.metrics.add(name=f"{number}" * 10_000).gauge.SetInParent()
            point = scope.metrics.add(name="x" * 10_000).gauge.data_points.add(as_double=1.0)
            point.time_unix_nano = 1_700_000_000_000_000_000
        answer = service.post(
            "/v1/metrics",
            request.SerializeToString(),
            **{"Content-Type": "application/x-protobuf"},
        )
        assert answer.status_code == 200
        memory = services(service.app).metric_store._memory
        assert memory.known == {}
        # A field that protobuf does not know is part of what tells series apart: by its hash.
        unknown = bytes([0xFA, 0x7F, 0xFF, 0x7F]) + b"u" * 16_383
        request.Clear()
        point = request.resource_metrics.add().scope_metrics.add().metrics.add(name="known")
        point.gauge.data_points.add(time_unix_nano=AT, as_double=1.0).MergeFromString(unknown)
        answer = service.post(
            "/v1/metrics",
            request.SerializeToString(),
            **{"Content-Type": "application/x-protobuf"},
        )
        assert answer.status_code == 200
        [keys] = memory.known.values()
        assert max(map(len, keys)) < 1_000


@pytest.mark.sqlite
def test_what_is_remembered_of_series_is_bounded_in_bytes_and_all_are_stored(
    tmp_path: Path, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_memory, "_MOST_BYTES", 20_000)
    with serving(tmp_path, new_database()) as service:
        memory = services(service.app).metric_store._memory
        most = 0
        for number in range(20):
            names = [f"{number}-{one}-{'n' * 200}" for one in range(20)]
            assert service.metrics(*names)[0] == 200
            kept = sum(
                sum(map(len, family[:3])) + sum(map(len, ids))
                for family, ids in memory.known.items()
            )
            most = max(most, kept)
            assert kept < 20_000
        assert most > 2_000  # something is remembered
        assert len(service.stored(schema.series.c.id)) == 400
        assert service.metrics(*names)[0] == 200
        assert len(service.stored(schema.series.c.id)) == 400


def test_of_labels_hashes_are_remembered() -> None:
    labels = Labels()
    large = make_beat(make_cluster(tags={f"{n}{'k' * 200}": "v" * 200 for n in range(100)}))
    for number in range(3):
        labels.written(large, f"w{number}")
        assert not labels.changed(large, f"w{number}")
    assert all(type(one) is int for one in labels._written.values())


def test_of_clusters_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_rows, "_REMEMBERED", 10)
    labels, due = Labels(), UsageDue()
    for number in range(100):
        beat = make_beat(make_cluster(f"c{number}"))
        labels.written(beat, "w")
        row = due.row(beat, 1, "w", beat.status.at)
        assert row is not None
        due.written(row)
    assert max(len(labels._written), len(due._written)) <= 10
