"""The dashboards' figures of now, asked at every second of a step, and after the end.

Three clusters of two threads report every ten seconds, each at other seconds, and end together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from daskscope import names
from grafana.board import Board
from grafana.boards import BOARDS
from tests.stack.asking import Shown, ask_target, choose, rows
from tests.stack.influxdb import DATABASE, InfluxDB, Major

#: Seconds between two reports of a cluster, and between the last one and its not counting as now.
INTERVAL = 10
FRESH = 30
HOUR = 3600

#: What is true of them all together, by dashboard and panel. The dashboards of one cluster show
#: the one that is idle.
TRUE = {
    ("daskscope-fleet", "Clusters"): 3,
    ("daskscope-fleet", "Clusters at work"): 2,
    ("daskscope-fleet", "Workers"): 6,
    ("daskscope-fleet", "Tasks to be done"): 12,
    ("daskscope-fleet", "Cost per hour"): 3 * HOUR,
    ("daskscope-fleet", "Idle threads"): 2,
    ("daskscope-cost", "Cost per hour"): 3 * HOUR,
    ("daskscope-pipeline", "Clusters that report"): 3,
    ("daskscope-cluster", "Idle for"): 100,
    ("daskscope-cluster", "Clients"): 1,
    ("daskscope-cluster", "Tasks to be done"): 4,
    ("daskscope-cluster", "Tasks that no worker can run"): 2,
    ("daskscope-cluster", "Results held"): 7,
    ("daskscope-computation", "Tasks that workers have"): 3,
    ("daskscope-computation", "Tasks that wait"): 1,
}


@pytest.fixture(scope="module")
def end() -> float:
    """When all have ended: at the beginning of a step, as InfluxDB counts them."""
    return time.time() // FRESH * FRESH - 2 * HOUR


@pytest.fixture(scope="module")
def database(
    influxd: Path, major: Major, tmp_path_factory: pytest.TempPathFactory, end: float
) -> Iterator[InfluxDB]:
    with InfluxDB(major, influxd, tmp_path_factory.mktemp("now")) as database:
        answer = requests.post(
            f"{database.url}/write",
            params={"db": DATABASE, "precision": "ms"},
            data="\n".join(_lines(end)).encode(),
            headers={"Authorization": f"Token {database.token}"},
            timeout=30,
        )
        assert answer.ok, answer.text
        yield database


@pytest.mark.parametrize(
    ("span", "step"), [(6 * HOUR, 30), (7 * 24 * HOUR, 1800)], ids=["six hours", "seven days"]
)
def test_figures_of_now_are_right_at_every_second(
    database: InfluxDB, end: float, span: float, step: int
) -> None:
    chosen = _chosen(database, end - 60, span, step)
    wrong = {
        (second, panel): value
        for second in _seconds(step)
        for panel, value in _shown(database, chosen, end - 60 + second, span, step).items()
        if value != pytest.approx(TRUE[panel])
    }

    assert wrong == {}


#: What lines show of the three all along, however the sum over a panel's lines is made up.
STEADY = {
    ("daskscope-fleet", "Threads"): 6,
    ("daskscope-fleet", "Tasks"): 33,
    ("daskscope-cost", "Cost per hour, by cluster"): 3 * HOUR,
    ("daskscope-pipeline", "Clusters that report"): 3,
}


@pytest.mark.parametrize(
    ("span", "step"), [(6 * HOUR, 30), (6 * HOUR, 120)], ids=["half a minute", "two minutes"]
)
def test_lines_do_not_fall_at_their_end(
    database: InfluxDB, end: float, span: float, step: int
) -> None:
    asked: set[tuple[str, str]] = set()
    wrong: dict[tuple[int, tuple[str, str], float], float] = {}
    boards = [board for board in BOARDS if board.uid in {uid for uid, _ in STEADY}]
    first = Shown(end - 60 - span, end - 60 + 0.4, step)
    chosen = {board.uid: choose(database, board, first)[0] for board in boards}
    for second in _seconds(step):
        shown = Shown(end - 60 + second - span, end - 60 + second + 0.4, step)
        for board in boards:
            values = chosen[board.uid]
            for panel in board.panels():
                place = (board.uid, panel["title"])
                if panel["type"] != "timeseries" or place not in STEADY:
                    continue
                asked.add(place)
                sums = _sums(database, panel, shown, values)
                # A counter's line begins with its second step.
                steady = {time: value for time, value in sums.items() if time > end - 600 + step}
                assert len(steady) > 1, (place, second)
                wrong |= {
                    (second, place, time - end): value
                    for time, value in steady.items()
                    if value != pytest.approx(STEADY[place])
                }

    assert asked == set(STEADY)
    assert wrong == {}


def _sums(
    database: InfluxDB, panel: dict[str, Any], shown: Shown, values: dict[str, str]
) -> dict[float, float]:
    """Return the sum of a panel's lines at each of its times, in seconds."""
    found: dict[float, float] = {}
    for target in panel["targets"]:
        for row in rows(ask_target(database, target, shown, values)):
            (value,) = (row[name] for name in row if name in ("sum", "count", "max"))
            time = row["time"] / 1e9
            found[time] = found.get(time, 0.0) + value
    return found


def test_after_their_end_nothing_is_shown_as_of_now(database: InfluxDB, end: float) -> None:
    now = end + FRESH + 1
    after = _shown(database, _chosen(database, now, 6 * HOUR, 30), now, 6 * HOUR, 30)

    assert after == dict.fromkeys(TRUE)


def test_a_cluster_is_heard_for_about_five_minutes_after_its_last_report(
    database: InfluxDB, end: float
) -> None:
    for second in _seconds(30):
        assert _heard(database, end - 60 + second) == [True] * 3
    for second in range(0, 120, 10):
        assert _heard(database, end + 4 * 60 - 121 + second) == [True] * 3
        assert _heard(database, end + 6 * 60 + second) == [False] * 3


def _heard(database: InfluxDB, until: float) -> list[bool]:
    """Return what Fleet's table says of each cluster."""
    shown = Shown(until - 6 * HOUR, until + 0.4, 30)
    (board,) = (board for board in BOARDS if board.uid == "daskscope-fleet")
    values, _ = choose(database, board, shown)
    (target,) = (
        target
        for panel in board.panels()
        for target in panel.get("targets", ())
        if 'AS "Heard"' in target["query"]
    )
    return [row["Heard"] > 0 for row in rows(ask_target(database, target, shown, values))]


def _seconds(step: int) -> Iterator[int]:
    # A long step begins long before: its seconds are alike.
    yield from range(0, 30, 1 if step == 30 else 5)


#: What stands for the variables of each dashboard in its queries.
_Chosen = dict[str, dict[str, str]]


def _chosen(database: InfluxDB, now: float, span: float, step: int) -> _Chosen:
    """Return what is chosen as the dashboards are opened; as they are shown, it stays."""
    shown = Shown(now - span, now + 0.4, step)
    return {
        board.uid: choose(database, board, shown, cluster=("idle",) if board.single else None)[0]
        for board in BOARDS
        if board.uid in {uid for uid, _ in TRUE}
    }


def _shown(
    database: InfluxDB, chosen: _Chosen, now: float, span: float, step: int
) -> dict[tuple[str, str], float | None]:
    """Return what the panels of now show at that moment; None for those without data."""
    shown = Shown(now - span, now + 0.4, step)
    return {
        (board.uid, panel["title"]): _number(database, panel, shown, chosen[board.uid])
        for board in BOARDS
        for panel in board.panels()
        if (board.uid, panel["title"]) in TRUE and panel["type"] == "stat"
    }


def _number(
    database: InfluxDB, panel: dict[str, Any], shown: Shown, values: dict[str, str]
) -> float | None:
    (target,) = panel["targets"]
    answer = rows(ask_target(database, target, shown, values))
    numbers = [value for row in answer for name, value in row.items() if name != "time"]
    return None if not numbers else float(numbers[-1])


def test_every_panel_of_now_is_among_them() -> None:
    asked = {
        (board.uid, panel["title"]) for board in BOARDS for panel in _stats(board) if _is_now(panel)
    }

    assert asked == set(TRUE)


def _stats(board: Board) -> Iterator[dict[str, Any]]:
    return (panel for panel in board.panels() if panel["type"] == "stat")


def _is_now(panel: dict[str, Any]) -> bool:
    (target, *_) = panel["targets"]
    counted_in_range = ('FROM "logs"', "spread(", "max(")
    return not any(word in target["query"] for word in counted_in_range)


def _lines(end: float) -> Iterator[str]:
    """Yield what the three reported for ten minutes, in InfluxDB's line protocol."""
    for place, cluster in enumerate(("busy", "busy too", "idle")):
        idle = cluster == "idle"
        at = end - 600 + place * INTERVAL / 3
        while at <= end:
            lived = at - (end - 600)
            yield from (
                _line(cluster, at, metric, tags, value)
                for metric, tags, value in (
                    (names.WORKER_THREADS, {}, 2.0),
                    (names.CLUSTER_IDLE, {}, 100.0 if idle else 0.0),
                    (names.CLIENT_COUNT, {}, 1.0),
                    (names.WORKER_COUNT, {names.WORKER_STATE: "running"}, 2.0),
                    (names.TASK_COUNT, {names.TASK_STATE: "processing"}, 3.0),
                    (names.TASK_COUNT, {names.TASK_STATE: "waiting"}, 1.0),
                    (names.TASK_COUNT, {names.TASK_STATE: "no-worker"}, 0.0),
                    (names.TASK_UNRUNNABLE, {}, 2.0),
                    (names.TASK_COUNT, {names.TASK_STATE: "memory"}, 7.0),
                    (names.CLUSTER_COST, {}, lived),
                    (names.CLUSTER_IDLE_COST, {}, lived * idle),
                    (names.WORKER_TIME, {names.WORKER_STATE: "idle"}, 2 * lived * idle),
                    (names.WORKER_TIME, {names.WORKER_STATE: "busy"}, 2 * lived * (not idle)),
                )
            )
            at += INTERVAL


def _line(cluster: str, at: float, metric: names.Metric, tags: dict[str, str], value: float) -> str:
    all_tags = {
        names.CLUSTER_ID: cluster.replace(" ", "-"),
        names.CLUSTER_NAME: "some",
        names.SERVICE_NAMESPACE: "default",
        **tags,
    }
    written = ",".join(f"{key}={tag}" for key, tag in all_tags.items())
    field = "counter" if metric.instrument == "counter" else "gauge"
    return f"{metric.name},{written} {field}={float(value)} {at * 1000:.0f}"
