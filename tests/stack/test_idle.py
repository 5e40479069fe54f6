"""Idle has one meaning: each place that shows it shows the same of one cluster."""

from __future__ import annotations

import csv
import html
from typing import Any

import pytest
import requests

from daskscope import names
from daskscope_service.insight.wording import money, percent
from grafana.board import Board
from grafana.boards import BOARDS
from tests.service.pages import words
from tests.stack.asking import Shown, ask_target, choose, rows
from tests.stack.run import Run


@pytest.fixture
def browser(run: Run) -> requests.Session:
    session = requests.Session()
    token = run.service.token(["ingest", "read", "admin"])
    session.post(f"{run.service.url}/sign-in", data={"token": token}, timeout=30)
    session.headers["Authorization"] = f"Bearer {token}"
    return session


@pytest.fixture
def cluster(run: Run, browser: requests.Session) -> dict[str, Any]:
    """The cluster as the API answers it, which all else is held against."""
    found: dict[str, Any] = _json(run, browser, f"clusters/{run.cluster}")
    assert 0 < found["idle_cost"] < found["cost"]
    return found


def test_the_api_and_csv_files_say_of_all_places_the_same_idle_cost_and_time(
    run: Run, browser: requests.Session, cluster: dict[str, Any]
) -> None:
    idle_cost, seconds = cluster["idle_cost"], cluster["worker_seconds"]
    share = seconds["idle"] / sum(seconds.values())
    (listed,) = _json(run, browser, "clusters")["items"]
    assert (listed["idle_cost"], listed["worker_seconds"]) == (idle_cost, seconds)
    usage = _json(run, browser, "usage")["items"]
    assert sum(one["idle_cost"] for one in usage) == pytest.approx(idle_cost)
    assert sum(one["idle_seconds"] for one in usage) == pytest.approx(seconds["idle"])
    by_activity = {
        row["prefix"]: row["seconds"] for row in cluster["activities"] if not row["prefix"]
    }
    assert by_activity[""]["idle"] == pytest.approx(seconds["idle"])

    (row,) = _csv(run, browser, "/clusters.csv")
    assert float(row["idle_cost"]) == pytest.approx(idle_cost)
    assert float(row["idle_share"]) == pytest.approx(share)
    people = _csv(run, browser, "/people.csv")
    assert sum(float(row["idle_cost_estimate"]) for row in people) == pytest.approx(idle_cost)
    hours = sum(float(row["idle_compute_hours"]) for row in people)
    assert hours == pytest.approx(seconds["idle"] / 3600, abs=1e-4)


def test_the_pages_say_the_same_idle_cost_and_share(
    run: Run, browser: requests.Session, cluster: dict[str, Any]
) -> None:
    seconds = cluster["worker_seconds"]
    share = words(percent(seconds["idle"] / sum(seconds.values())))
    cost = money(cluster["idle_cost"], "EUR")
    for path in (f"/clusters/{run.cluster}", f"/clusters/{run.cluster}/report.html"):
        assert f"{cost} of it idle" in _page(run, browser, path), path
    for path in ("/clusters", "/people"):
        page = _page(run, browser, path)
        assert share in page, path
        assert cost in page, path
    assert f"of it {cost} idle" in _page(run, browser, "/")
    # What idle holds beside idle threads, and nothing measures.
    only = (
        "Only tasks are measured. Work of <code>client.run</code>, of actors, of other schedulers,"
    )
    assert only in _page(run, browser, f"/clusters/{run.cluster}")
    # As docs/operations.md defines it.
    assert "it is not that share of the cost" in _page(run, browser, "/people")
    assert "its share of the cost" not in _page(run, browser, "/people")


def test_metrics_and_dashboards_say_the_same_idle_cost_and_time(
    run: Run, cluster: dict[str, Any]
) -> None:
    (last,) = run.database.rows(
        f"""SELECT last("counter") AS "v" FROM "{names.CLUSTER_IDLE_COST.name}"
        WHERE "{names.CLUSTER_ID}" = '{run.cluster}'"""
    )
    assert last["v"] == pytest.approx(cluster["idle_cost"])
    (last,) = run.database.rows(
        f"""SELECT last("counter") AS "v" FROM "{names.WORKER_TIME.name}"
        WHERE "{names.CLUSTER_ID}" = '{run.cluster}' AND "{names.WORKER_STATE}" = 'idle'"""
    )
    assert last["v"] == pytest.approx(cluster["worker_seconds"]["idle"])

    shown = Shown(run.since - 600, run.until + 60)
    found = {
        (board.uid, column): value
        for board in BOARDS
        for target, values in _of_cost(run, board, shown)
        for row in rows(ask_target(run.database, target, shown, values))
        for column, value in row.items()
        if column == "Idle cost" and row.get(names.CLUSTER_ID, run.cluster) == run.cluster
    }
    assert set(found) == {("daskscope-cost", "Idle cost"), ("daskscope-fleet", "Idle cost")}
    for place, value in found.items():
        # What the first report had counted is not in what grew after it.
        assert value == pytest.approx(cluster["idle_cost"], rel=0.05), place


def test_fleets_idle_threads_are_those_whose_time_the_cluster_counts_as_idle(run: Run) -> None:
    counted = run.database.rows(
        f"""SELECT "counter" AS "v" FROM "{names.WORKER_TIME.name}"
        WHERE "{names.CLUSTER_ID}" = '{run.cluster}' AND "{names.WORKER_STATE}" = 'idle'"""
    )
    end = counted[-1]["time"] / 1e9
    of_now = [row for row in counted if row["time"] / 1e9 > end - 30]
    grew, took = (of_now[-1][key] - of_now[0][key] for key in ("v", "time"))
    assert grew > 0

    shown = Shown(run.since - 600, end + 0.001)
    (fleet,) = (board for board in BOARDS if board.uid == "daskscope-fleet")
    values, _ = choose(run.database, fleet, shown)
    (panel,) = (panel for panel in fleet.panels() if panel["title"] == "Idle threads")
    (target,) = panel["targets"]
    (row,) = rows(ask_target(run.database, target, shown, values))
    assert row["Idle"] == pytest.approx(grew / (took / 1e9), rel=0.05)


def _of_cost(run: Run, board: Board, shown: Shown) -> list[tuple[dict[str, Any], dict[str, str]]]:
    values, _ = choose(run.database, board, shown, cluster=(run.cluster,))
    return [
        (target, values)
        for panel in board.panels()
        for target in panel.get("targets", ())
        if names.CLUSTER_IDLE_COST.name in target["query"]
    ]


def _json(run: Run, browser: requests.Session, path: str) -> Any:
    answer = browser.get(f"{run.service.url}/api/v1/{path}", timeout=30)
    assert answer.ok, answer.text
    return answer.json()


def _csv(run: Run, browser: requests.Session, path: str) -> list[dict[str, str]]:
    answer = browser.get(f"{run.service.url}{path}", timeout=30)
    assert answer.ok, answer.text
    return list(csv.DictReader(answer.text.splitlines()))


def _page(run: Run, browser: requests.Session, path: str) -> str:
    answer = browser.get(f"{run.service.url}{path}", timeout=30)
    assert answer.ok, answer.text
    return words(html.unescape(answer.text))
