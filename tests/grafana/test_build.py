"""What holds for the dashboards and alerts as they are written, with no database."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daskscope import names
from grafana import influxql, rules
from grafana.board import COLUMNS, Board
from grafana.boards import BOARDS
from grafana.build import HERE
from grafana.influxql import NOW, SCOPE
from grafana.provision import METRICS_UID, SPANS_UID, datasources

ROOT = HERE.parent

#: Metrics that no panel and no alert asks for, with the reason. There is none.
UNUSED: set[str] = set()

#: Kinds of panels that draw over time need more room than a number does.
LEAST_HEIGHT = {"stat": 4, "timeseries": 7, "barchart": 7, "bargauge": 7, "table": 6}

every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


def panels(board: Board) -> list[dict[str, Any]]:
    return [panel for panel in board.panels() if panel["type"] != "row"]


def texts() -> list[str]:
    """Return all queries of panels and alerts."""
    asked = [
        str(target["query"])
        for board in BOARDS
        for panel in panels(board)
        for target in panel["targets"]
    ]
    return asked + [value.query for rule in rules.RULES for value in rule.values]


def test_the_committed_files_are_what_is_built() -> None:
    check = [sys.executable, "-m", "grafana.build", "--check"]

    result = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


def test_no_dashboard_is_left_over() -> None:
    built = {f"{board.uid.removeprefix('daskscope-')}.json" for board in BOARDS}

    assert {path.name for path in (HERE / "dashboards").iterdir()} == built


def test_every_metric_is_asked_for() -> None:
    asked = {name for text in texts() for name in re.findall(r'FROM "([^"]+)"', text)}

    assert {metric.name for metric in names.METRICS} - asked == UNUSED


def test_every_kind_of_span_or_log_event_is_asked_for_or_its_data_is() -> None:
    joined = " ".join(texts())
    # The span of a computation says what its log event says.
    told = [f"/^{re.escape(kind.name)} /" for kind in names.SPANS]
    told = [kind for kind in told if kind != f"/^{re.escape(names.SPAN_COMPUTATION.name)} /"]
    told += [f"'{event.name}'" for event in names.LOG_EVENTS]

    assert [kind for kind in sorted(told) if kind not in joined] == []


@every_board
def test_panels_fill_the_grid_without_overlapping(board: Board) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board.panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    # Without holes, too: each line of the grid is full.
    height = 1 + max(y for _, y in taken)
    holes = [(x, y) for y in range(height) for x in range(COLUMNS) if (x, y) not in taken]
    assert holes == []


@every_board
def test_panels_say_what_they_show_and_why_they_are_empty(board: Board) -> None:
    for panel in panels(board):
        title, defaults = panel["title"], panel["fieldConfig"]["defaults"]
        assert panel["description"].endswith("."), title
        assert defaults["noValue"], title
        assert defaults["unit"], title
        assert panel["gridPos"]["h"] >= LEAST_HEIGHT[panel["type"]], title
        assert panel["interval"], title


@every_board
def test_every_query_is_held_to_workspace_cluster_and_time(board: Board) -> None:
    for panel in panels(board):
        for target in panel["targets"]:
            # Each SELECT that reads a measurement; the others read what those found.
            reads = re.split(r"SELECT (?!.*SELECT)", target["query"])
            assert len(reads) == 2
            assert SCOPE in reads[1], panel["title"]
            assert "$timeFilter" in reads[1] or NOW in reads[1], panel["title"]


@every_board
def test_users_hold_where_there_are_users(board: Board) -> None:
    """Log events and spans that carry a user are of the chosen ones, not only on their clusters."""
    with_users = [
        event.name for event in names.LOG_EVENTS if names.USER_NAME in event.attributes
    ] + [span.name for span in names.SPANS if names.USER_NAME in span.attributes]
    for panel in panels(board):
        for target in panel["targets"]:
            if any(f"'{name}'" in target["query"] for name in with_users):
                assert f'"{names.USER_NAME}" =~ /^$user$/' in target["query"], panel["title"]


@every_board
def test_variables_come_before_those_that_ask_with_them(board: Board) -> None:
    known: set[str] = set()
    for variable in board.json()["templating"]["list"]:
        if variable["type"] == "query":
            used = set(re.findall(r"\$(\w+)", variable["query"]["query"])) - {"timeFilter"}
            assert used <= known, variable["name"]
        known.add(variable["name"])
    everywhere = {"metrics", "spans", "workspace", "user", "fresh", "service"}
    everywhere |= {"cluster_name", "cluster"}
    assert known - everywhere == (
        {"computation", "tempo", "jaeger"} if board.by_computation else set()
    )
    assert everywhere <= known


@every_board
def test_names_and_numbers_are_unique_and_stay(board: Board) -> None:
    numbers = [panel["id"] for panel in board.panels()]
    assert len(set(numbers)) == len(numbers)
    assert len({other.uid for other in BOARDS}) == len(BOARDS)
    # Grafana takes at most forty characters.
    assert re.fullmatch(r"daskscope-[a-z]{1,30}", board.uid)


@every_board
def test_links_lead_to_dashboards_that_are_there(board: Board) -> None:
    linked = re.findall(r"/d/([\w-]+)\?", json.dumps(board.json()))

    assert set(linked) <= {other.uid for other in BOARDS}


def test_the_sources_that_dashboards_prefer_are_provisioned() -> None:
    provisioned = {source["uid"]: source["name"] for source in datasources()["datasources"]}

    for board in BOARDS:
        variables = {
            variable["name"]: variable["current"]
            for variable in board.json()["templating"]["list"]
            if variable["type"] == "datasource" and variable["query"] == "influxdb"
        }
        for name, uid in (("metrics", METRICS_UID), ("spans", SPANS_UID)):
            assert variables[name]["value"] == uid
            assert variables[name]["text"] == provisioned[uid]


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.uid)
def test_every_alert_has_a_runbook_a_panel_and_values_for_its_condition(rule: Any) -> None:
    path, _, anchor = rule.runbook.partition("#")
    headings = re.findall(r"(?m)^## (.+)$", (ROOT / path).read_text(encoding="utf-8"))
    assert anchor in [heading.lower().replace(" ", "-") for heading in headings]
    assert anchor == rule.title.lower().replace(" ", "-")
    assert rule.board.panel_id(rule.panel)
    used = set(re.findall(r"\$(\w+)", rule.condition))
    assert used == {value.name for value in rule.values}
    told = set(re.findall(r'index \.Values "(\w+)"', rule.summary))
    assert told <= used


def test_nothing_in_the_alerts_is_taken_for_a_variable_of_the_environment() -> None:
    """Grafana expands ``$NAME`` in all of such a file but the queries."""
    for rule in rules.RULES:
        written = rule.provisioned()
        for part in (written["title"], *written["annotations"].values()):
            assert "$" not in part


def test_what_is_not_there_is_an_error_here_and_not_an_empty_panel() -> None:
    with pytest.raises(ValueError, match=r"dask\.worker\.threads has no tag dask\.worker\.state"):
        influxql.level(names.WORKER_THREADS, names.WORKER_STATE)
    with pytest.raises(ValueError, match="is a counter"):
        influxql.level(names.WORKER_TIME)
    with pytest.raises(ValueError, match="is a updowncounter"):
        influxql.rate(names.WORKER_COUNT)
    with pytest.raises(ValueError, match="logs has no tag"):
        influxql.events(names.LOG_EVENT, names.EVENT_TOPIC)
    with pytest.raises(ValueError, match="another title"):
        influxql.so_far(names.TASK_TIME, title="Time")


def test_the_collector_makes_tags_of_what_is_asked_by() -> None:
    """The dimensions of ``collector_config`` are those that the queries take for tags."""
    configurations = sorted(Path(ROOT / "collector_config").glob("influxdb*.yaml"))
    assert configurations
    for path in configurations:
        text = path.read_text(encoding="utf-8")
        for key, tags in (
            ("log_record_dimensions", influxql.LOG_TAGS),
            ("span_dimensions", influxql.SPAN_TAGS),
        ):
            found = re.search(rf"{key}:\s*\[([^\]]*)\]", text)
            assert found is not None, path.name
            assert set(tags) <= {name.strip() for name in found[1].split(",")}, path.name
