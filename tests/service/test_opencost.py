"""Costs that an OpenCost computes: which it is asked for, and what becomes of odd answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import select, update

from daskscope.errors import ConfigurationError
from daskscope.protocol import Prices
from daskscope_service.costs import opencost, usage_totals
from daskscope_service.costs.opencost import OpenCost, OpenCostReader, Unreachable
from daskscope_service.costs.usage import add_up
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.db.scope import Scope
from daskscope_service.periodic import Stopped
from daskscope_service.settings import Settings
from tests.patience import wait_until
from tests.service.beats import make_beat, make_cluster, make_status, make_tiny_tasks, post
from tests.service.conftest import NewDatabase
from tests.service.test_price_list import HOUR, Place
from tests.service_process import ServiceProcess

DAY = 86_400
SCHEDULER = "nightly-scheduler-7f6c9d"
ON_KUBERNETES = {"k8s.namespace.name": "dask", "k8s.pod.name": SCHEDULER}


def allocation(pod: str, cost: float, namespace: str = "dask", **labels: str) -> dict[str, Any]:
    """Return an allocation, with the fields of OpenCost's answers."""
    return {
        "name": f"cluster-one/node-1/{namespace}/{pod}/dask",
        "properties": {
            "cluster": "cluster-one",
            "node": "node-1",
            "container": "dask",
            "controller": "nightly",
            "controllerKind": "deployment",
            "namespace": namespace,
            "pod": pod,
            "labels": {"app_kubernetes_io_name": "dask"} | labels,
        },
        "window": {"start": "2026-07-01T00:00:00Z", "end": "2026-07-01T01:00:00Z"},
        "start": "2026-07-01T00:00:00Z",
        "end": "2026-07-01T01:00:00Z",
        "minutes": 60.0,
        "cpuCores": 1.0,
        "cpuCost": cost / 2,
        "gpuCost": 0.0,
        "ramCost": cost / 2,
        "pvs": None,
        "totalCost": cost,
        "totalEfficiency": 0.5,
        "rawAllocationOnly": None,
    }


OWN = {"dask_org_cluster_name": "nightly"}
ALLOCATIONS = [
    allocation(SCHEDULER, 0.25, **OWN),
    allocation("nightly-worker-1", 1.0, **OWN),
    allocation("nightly-worker-2", 1.5, **OWN),
    allocation("other-worker-1", 64.0, dask_org_cluster_name="other"),
    allocation("nightly-worker-1", 128.0, namespace="elsewhere", **OWN),
    {"name": "__idle__", "totalCost": 256.0},
]


class Answers:
    """A server that answers as OpenCost does; ``body`` replaces the answer.

    ``asked`` are the queries. Those with the filter ``fails`` have the answer HTTP 500.
    """

    def __init__(self) -> None:
        self.allocations = ALLOCATIONS
        self.body: bytes | None = None
        self.status, self.headers = 200, dict[str, str]()
        self.asked: list[dict[str, str]] = []
        self.drips, self.is_dripping = False, threading.Event()
        self.fails = ""
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append(query | {"path": parts.path})
        data = [{one["name"]: one for one in self.allocations}]
        body = self.body or json.dumps({"code": 200, "data": data}).encode()
        handler.send_response(500 if query["filter"] == self.fails else self.status)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        if self.drips:
            handler.end_headers()
            self.is_dripping.set()
            while not self._ended.wait(0.01):
                try:
                    handler.wfile.write(b" ")
                except OSError:
                    return
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Answers]:
    with Answers() as server:
        yield server


def reader_of(place: Place, server: Answers, *namespaces: str) -> OpenCostReader:
    found = opencost.of(
        Settings(opencost_url=server.url, opencost_namespaces=namespaces, prices_currency="EUR")
    )
    assert found is not None
    return OpenCostReader(place.service.engine, found, 60.0, threading.Event())


@pytest.fixture
def place(tmp_path: Path, server: Answers, new_database: NewDatabase) -> Iterator[Place]:
    options: dict[str, Any] = {"opencost_url": server.url, "opencost_namespaces": ("dask",)}
    database = new_database()
    with ServiceProcess(tmp_path / "service", database_url=database, **options) as service:
        yield Place(service)


def test_a_cluster_costs_what_the_pods_with_its_label_cost(place: Place, server: Answers) -> None:
    place.beat("Scheduler-k", deployment=ON_KUBERNETES)
    own: dict[str, Any] = {"prices": Prices("USD", {"thread": 1.0}), "cost": 16.0}
    place.beat("Scheduler-own", deployment=ON_KUBERNETES, **own)
    place.beat("Scheduler-elsewhere")
    reader = reader_of(place, server, "dask")
    assert reader.round() == 1
    [asked] = server.asked
    assert asked["path"] == "/allocation/compute"
    assert (asked["filter"], asked["accumulate"]) == ('namespace:"dask"', "true")
    found = place.get("clusters/Scheduler-k")
    assert found["cost"] == pytest.approx(2.75)
    assert found["idle_cost"] == pytest.approx(2.75 / 4)
    assert (found["price_source"], found["prices"]["currency"]) == ("opencost", "EUR")
    assert place.get("clusters/Scheduler-own")["price_source"] == "cluster"
    assert place.get("clusters/Scheduler-elsewhere")["price_source"] == "list"
    used = {one["price_source"]: one["cost"] for one in place.get("usage", weeks=2)["items"]}
    assert used["opencost"] == pytest.approx(2.75)
    page = place.see("/clusters/Scheduler-k")
    assert '2.75 EUR</dd><dd class="faint"> estimate of OpenCost' in page
    # A later heartbeat leaves it as it is.
    place.beat("Scheduler-k", deployment=ON_KUBERNETES, seq=2)
    assert place.get("clusters/Scheduler-k")["cost"] == pytest.approx(2.75)
    # Without a label that they share, it is the scheduler's pod alone.
    server.allocations = [allocation(SCHEDULER, 0.25), allocation("nightly-worker-1", 1.0)]
    reader.round()
    assert place.get("clusters/Scheduler-k")["cost"] == pytest.approx(0.25)
    # OpenCost corrects costs, so that one may be below 0.
    server.allocations = [allocation(SCHEDULER, -0.25)]
    reader.round()
    assert place.get("clusters/Scheduler-k")["cost"] == 0
    server.allocations = [allocation(SCHEDULER, 0.25)]
    reader.round()
    # OpenCost does not know the pod.
    server.allocations = []
    assert reader.round() == 0
    assert place.get("clusters/Scheduler-k")["cost"] == pytest.approx(0.25)


def of_days(place: Place, first: int) -> dict[int, float | None]:
    """Return what clusters cost on the days of four, from ``first``, on which any ran."""
    with place.service.engine.connect() as connection:
        days = add_up(Scope(connection, "default", 0.0, 0.0), first, 4, 1)
    return {day - first: one["operator_cost"] for day, items in days.items() for one in items}


def test_the_days_of_a_cluster_share_its_cost(place: Place, server: Answers) -> None:
    today = int(time.time() // DAY)
    id, start = "Scheduler-days", (today - 3) * DAY + 60.0
    engine = place.service.engine
    reader = reader_of(place, server, "dask")

    def reports(seq: int, day: int, hours: float, stopped_at: float | None = None) -> None:
        at = time.time() if day == 3 else start + day * DAY
        status = make_status(at=at, worker_seconds={"busy": hours * HOUR}, stopped_at=stopped_at)
        cluster = make_cluster(id, started_at=start, deployment=ON_KUBERNETES, prices=None)
        assert post(place.service.url, place.token, make_beat(cluster, seq, status=status)).ok

    reports(1, 0, 10.0)
    reports(2, 1, 20.0)
    reports(3, 3, 40.0)
    assert reader.round() == 1
    expected = {0: 2.75 / 4, 1: 2.75 / 4, 3: 2.75 / 2}
    assert of_days(place, today - 3) == pytest.approx(expected)
    # What is stored of earlier days is what a page shows that adds up everything.
    usage_totals.sum_up(engine)
    server.allocations = [allocation(SCHEDULER, 1.5, **OWN)]
    assert reader.round() == 1
    assert sum(one["cost"] for one in place.get("usage", weeks=2)["items"]) == pytest.approx(1.5)
    # After the end, they add up to the cost, however little it changes.
    reports(4, 3, 40.0, stopped_at=time.time())
    for cost in (1.501, 1.4999):
        server.allocations = [allocation(SCHEDULER, cost, **OWN)]
        assert reader.round() == 1
        expected = {0: cost / 4, 1: cost / 4, 3: cost / 2}
        assert of_days(place, today - 3) == pytest.approx(expected, rel=1e-9)


def test_a_cost_is_shared_by_the_threads_time_of_days() -> None:
    assert opencost._shared(30.0, [10.0, 20.0, 60.0]) == pytest.approx([5.0, 10.0, 30.0])
    # The plugin was restarted on the second day, and counts from 0.
    assert opencost._shared(30.0, [10.0, 5.0, 20.0]) == pytest.approx([10.0, 5.0, 20.0])
    assert opencost._shared(30.0, [0.0, 5e-324]) == [0.0, 30.0]
    assert opencost._shared(30.0, []) == []


def test_a_workspace_reads_the_costs_of_the_namespaces_that_the_operator_allows(
    place: Place, server: Answers
) -> None:
    place.beat("Scheduler-k", deployment=ON_KUBERNETES)
    for namespaces in (("other",), ("elsewhere=dask",)):
        assert reader_of(place, server, *namespaces).round() == 0
    assert server.asked == []
    assert reader_of(place, server, "elsewhere=dask", "default=dask").round() == 1
    odd = {"k8s.pod.name": SCHEDULER, "k8s.namespace.name": 'x"+namespace:"dask'}
    place.beat("Scheduler-odd", deployment=odd)
    assert reader_of(place, server, "dask").round() == 1
    assert {one["filter"] for one in server.asked} == {'namespace:"dask"'}


def test_a_cluster_that_fell_silent_costs_what_it_cost_until_then(
    place: Place, server: Answers
) -> None:
    runs: dict[str, Any] = {"started_at": time.time() - 600, "prices": None}
    cluster = make_cluster("Scheduler-k", **runs, deployment=ON_KUBERNETES)
    status = make_status(at=time.time(), worker_seconds={"busy": HOUR})
    assert post(place.service.url, place.token, make_beat(cluster, 1, status=status)).ok
    with writing(place.service.engine) as connection:
        heard_at = float(int(time.time()) - 300)
        connection.execute(update(schema.cluster).values(last_seen_at=heard_at))
    assert reader_of(place, server, "dask").round() == 1
    [asked] = server.asked
    assert asked["window"].split(",")[1] == f"{datetime.fromtimestamp(heard_at, UTC):%FT%TZ}"
    with writing(place.service.engine) as connection:
        connection.execute(update(schema.cluster).values(last_seen_at=heard_at - HOUR))
    assert reader_of(place, server, "dask").round() == 0


def test_of_too_many_clusters_each_is_asked_about_in_some_round(
    place: Place, server: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of others take no room.
    for n in range(4):
        elsewhere = {"k8s.namespace.name": "elsewhere", "k8s.pod.name": f"other-{n}"}
        place.beat(f"Scheduler-other-{n}", deployment=elsewhere)
    server.allocations = [allocation(f"pod-{n}", 1.0 + n) for n in range(6)]
    for n in range(6):
        runs: dict[str, Any] = {"started_at": time.time() - 60 * n - 60, "prices": None}
        where = {"k8s.namespace.name": "dask", "k8s.pod.name": f"pod-{n}"}
        cluster = make_cluster(f"Scheduler-{n}", **runs, deployment=where)
        ended = {"stopped_at": time.time()} if n % 2 else {}
        status = make_status(at=time.time(), worker_seconds={"busy": HOUR}, **ended)
        assert post(place.service.url, place.token, make_beat(cluster, 1, status=status)).ok
    monkeypatch.setattr(opencost, "_MOST_CLUSTERS", 2)
    reader = reader_of(place, server, "dask")
    # That one is left out in all of these rounds is next to impossible.
    assert [reader.round() for _ in range(100)] == [2] * 100
    found = [place.get(f"clusters/Scheduler-{n}")["cost"] for n in range(6)]
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": 500}, "HTTP 500"),
        ({"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}}, "HTTP 302"),
        ({"body": b"<html>"}, "not an answer of OpenCost"),
        ({"body": b'{"code": 200, "data": {"sets": []}}'}, "not an answer of OpenCost"),
        ({"body": b'{"data": [{"a": {"totalCost": "1"}}]}'}, "not an answer of OpenCost"),
        ({"allocations": [allocation(SCHEDULER, 1e308)] * 2}, "a cluster that costs 1e+308"),
        ({"body": b" " * 2048}, "more than 0 MiB"),
        ({"drips": True}, "took more than 0 s"),
    ],
)
def test_an_answer_that_is_not_valid_changes_nothing_and_is_reported(
    place: Place,
    server: Answers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fields: dict[str, Any],
    said: str,
) -> None:
    place.beat("Scheduler-k", deployment=ON_KUBERNETES)
    reader = reader_of(place, server, "dask")
    for name, value in fields.items():
        setattr(server, name, value)
    if "MiB" in said:
        monkeypatch.setattr(opencost, "_MOST_BYTES", 1024)
    if "took" in said:
        monkeypatch.setattr(opencost, "_MOST_SECONDS", 0.1)
    assert reader.round() == 0
    [logged] = [
        record.getMessage() for record in caplog.records if record.name == opencost.__name__
    ]
    assert logged.startswith(
        "OpenCost, DASKSCOPE_OPENCOST_URL, gave no cost of cluster Scheduler-k in namespace dask: "
    )
    assert said in logged
    assert place.get("clusters/Scheduler-k")["price_source"] == "list"


def test_a_service_that_cannot_be_reached_ends_the_round(place: Place, server: Answers) -> None:
    nowhere = OpenCost("http://127.0.0.1:9", "USD", frozenset({"dask"}), {})
    with pytest.raises(Unreachable, match="DASKSCOPE_OPENCOST_URL: ConnectionError"):
        nowhere.cost("dask", SCHEDULER, time.time() - 60, time.time(), threading.Event())
    place.beat("Scheduler-k", deployment=ON_KUBERNETES)
    with pytest.raises(Unreachable):
        OpenCostReader(place.service.engine, nowhere, 60.0, threading.Event()).round()


def test_an_answer_that_is_not_valid_keeps_no_other_cluster_from_its_cost(
    place: Place, server: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    for workspace in ("default", "other"):
        token = place.service.token(workspace=workspace)
        for n in range(2):
            pod = {"k8s.namespace.name": f"dask-{n}", "k8s.pod.name": SCHEDULER}
            status = make_status(at=time.time(), worker_seconds={"busy": HOUR})
            fields: dict[str, Any] = {"started_at": time.time() - 60, "deployment": pod}
            cluster = make_cluster(f"Scheduler-{n}", **fields, prices=None)
            assert post(place.service.url, token, make_beat(cluster, 1, status=status)).ok
    server.allocations = [allocation(SCHEDULER, 2.0, namespace="dask-1")]
    server.fails = 'namespace:"dask-0"'
    assert reader_of(place, server, "dask-0", "dask-1").round() == 2
    [logged] = [
        record.getMessage() for record in caplog.records if record.name == opencost.__name__
    ]
    assert "cluster Scheduler-0 in namespace dask-0: HTTP 500 (1 more)" in logged


def test_its_address_must_be_one_and_a_price_list_excludes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="must be an address such as"):
        Settings(opencost_url="opencost:9003")
    with pytest.raises(ConfigurationError, match="are both set"):
        Settings(opencost_url="http://opencost:9003", price_list=tmp_path / "prices.csv")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"opencost_namespaces": ()}, "DASKSCOPE_OPENCOST_URL is set, .*NAMESPACES is not"),
        ({"opencost_url": ""}, "DASKSCOPE_OPENCOST_NAMESPACES is set, DASKSCOPE_OPENCOST_URL is"),
        (
            {"opencost_namespaces": ("dask", "Dask")},
            "NAMESPACES has 'Dask'; it must be a namespace",
        ),
        ({"opencost_namespaces": ("=dask",)}, "NAMESPACES has '=dask'"),
        ({"opencost_namespaces": ("imaging=",)}, "NAMESPACES has 'imaging='"),
        ({"prices_currency": "eur"}, "DASKSCOPE_PRICES_CURRENCY is 'eur'; it must be the three"),
        ({"prices_currency": ""}, "DASKSCOPE_PRICES_CURRENCY is ''"),
        ({"prices_currency": "XXX"}, "DASKSCOPE_PRICES_CURRENCY is 'XXX'"),
    ],
)
def test_settings_of_it_that_are_not_valid_are_refused(fields: dict[str, Any], said: str) -> None:
    valid: dict[str, Any] = {
        "opencost_url": "http://opencost:9003",
        "opencost_namespaces": ("dask", "imaging=dask-imaging"),
        "prices_currency": "EUR",
    }
    Settings(**valid)
    with pytest.raises(ConfigurationError, match=said):
        Settings(**valid | fields)


def test_a_stop_of_the_service_ends_the_round(place: Place, server: Answers) -> None:
    for n in range(3):
        place.beat(f"Scheduler-{n}", deployment=ON_KUBERNETES)
    found = opencost.of(Settings(opencost_url=server.url, opencost_namespaces=("dask",)))
    assert found is not None
    ended = threading.Event()
    server.drips = True
    reader = OpenCostReader(place.service.engine, found, 60.0, ended)
    with ThreadPoolExecutor(1) as pool:
        round = pool.submit(reader.round)
        assert server.is_dripping.wait(60)
        ended.set()
        with pytest.raises(Stopped):
            round.result(timeout=60)
    with pytest.raises(Stopped):
        reader.round()
    assert len(server.asked) == 1


def test_findings_are_made_again_with_the_first_cost_and_with_that_after_the_end(
    place: Place, server: Answers
) -> None:
    now = time.time()
    fields: dict[str, Any] = {"started_at": now - 900, "deployment": ON_KUBERNETES, "prices": None}
    tiny = make_tiny_tasks("tiny", now - 600, now - 583.6)

    def reports(seq: int, **ended: float) -> None:
        status = make_status(at=now, worker_seconds={"busy": HOUR}, **ended)
        beat = make_beat(make_cluster("Scheduler-k", **fields), seq, status=status, **tiny)
        assert post(place.service.url, place.token, beat).ok

    def costs(expected: dict[str, float]) -> bool:
        """Return whether the findings cost that, by currency, for each second of a thread."""
        found = place.get("findings", cluster="Scheduler-k")["items"]
        return bool(found) and all(
            {one["currency"]: one["cost"]}
            == pytest.approx({name: of * one["seconds"] for name, of in expected.items()})
            for one in found
            if one["computation"]
        )

    def is_settled() -> bool:
        table = schema.computation
        with place.service.engine.connect() as connection:
            return connection.execute(select(table.c.judge_at)).scalars().all() == [None]

    reports(1)
    assert wait_until(lambda: costs({"USD": 0.031611 / HOUR}) and is_settled())
    reader = reader_of(place, server, "dask")
    assert reader.round() == 1
    assert wait_until(lambda: costs({"EUR": 2.75 / HOUR}))
    # While it runs, its cost grows as its threads' time does.
    assert wait_until(is_settled)
    server.allocations = [allocation(SCHEDULER, 5.5, **OWN)]
    assert reader.round() == 1
    assert is_settled()
    reports(2, stopped_at=now)
    assert wait_until(is_settled)
    for cost in (5.5, 5.0):
        server.allocations = [allocation(SCHEDULER, cost, **OWN)]
        assert reader.round() == 1
        assert not is_settled()
        assert wait_until(is_settled)
        assert costs({"EUR": cost / HOUR})
    assert reader.round() == 1
    assert is_settled()
