"""Every query of every dashboard, asked as Grafana asks it, of what a real run told."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from daskscope import names
from grafana.board import Board
from grafana.boards import BOARDS
from grafana.influxql import NOW
from tests.stack.asking import Shown, ask_target, choose, expand, rows, value_of
from tests.stack.clusters import PERSON, WORKSPACE, Two

#: Clusters that lived for seconds are looked at closely: Grafana's own least step is 30 s.
STEP = 1

#: Tags whose values tell the two clusters apart.
TELLING = (names.CLUSTER_ID, names.CLUSTER_NAME, names.SERVICE_NAMESPACE, names.USER_NAME)

every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


def targets(board: Board) -> list[tuple[str, dict[str, Any]]]:
    """Return what each panel asks, with a name for it."""
    return [
        (f"{panel['title']} {target['refId']}", target)
        for panel in board.panels()
        for target in panel.get("targets", [])
    ]


@every_board
def test_every_query_of_every_panel_finds_something(board: Board, two: Two) -> None:
    """With one cluster chosen, one of the two has it: they do different things.

    Both are gone, so what they last reported counts as now. By then neither was at work.
    """
    shown = two.shown(STEP)
    fresh = (f"{shown.until - shown.since:.0f}s",)
    choices = (two.first, two.second) if board.single else (None,)
    found: set[str] = set()
    for one in choices:
        values, _ = choose(two.database, board, shown, cluster=(one,) if one else None, fresh=fresh)
        found |= {
            name
            for name, target in targets(board)
            if rows(ask_target(two.database, target, shown, values))
        }

    empty = {name for name, _ in targets(board)} - found
    assert empty - {"Clusters at work A"} == set()


@every_board
def test_every_variable_has_both_clusters_people_and_workspaces(board: Board, two: Two) -> None:
    _, options = choose(two.database, board, two.shown(STEP))

    assert set(options["cluster"]) == {two.first, two.second}
    assert WORKSPACE in options["workspace"]
    assert PERSON in options["user"]
    assert len(options["workspace"]) == len(options["user"]) == 2


@every_board
def test_every_panel_is_held_to_the_chosen_cluster(board: Board, two: Two) -> None:
    """What is asked of one cluster and of the other adds up to what is asked of both, at most."""
    shown = two.shown(STEP)
    strange: list[str] = []
    for one, other in ((two.first, two.second), (two.second, two.first)):
        values, _ = choose(two.database, board, shown, cluster=(one,))
        for name, target in targets(board):
            # All its rows are of one cluster, whatever it makes of them in the end.
            read = _measured(target["query"])
            asked = {**target, "query": f"SELECT * FROM {read}"}
            ids = {
                row[names.CLUSTER_ID]
                for row in rows(ask_target(two.database, asked, shown, values))
            }
            if ids - {one} or other in ids:
                strange.append(name)

    assert strange == []


@every_board
@pytest.mark.parametrize(
    ("variable", "value"),
    [("workspace", WORKSPACE), ("user", PERSON), ("cluster_name", "other")],
    ids=["workspace", "user", "cluster's name"],
)
def test_a_workspace_a_user_and_a_name_leave_only_their_clusters(
    board: Board, two: Two, variable: str, value: str
) -> None:
    values, options = choose(two.database, board, two.shown(STEP), **{variable: (value,)})

    assert options["cluster"] == (two.second,)
    assert two.first not in values["cluster"].replace("\\", "")


def test_a_row_that_names_a_cluster_names_a_chosen_one(two: Two) -> None:
    """Tables show whose each row is: none is of another than the chosen one."""
    shown = two.shown(STEP)
    for board in BOARDS:
        values, _ = choose(two.database, board, shown, cluster=(two.second,))
        for name, target in targets(board):
            for row in rows(ask_target(two.database, target, shown, values)):
                assert row.get(names.CLUSTER_ID, two.second) == two.second, name
                assert row.get(names.SERVICE_NAMESPACE, WORKSPACE) == WORKSPACE, name


def test_columns_of_tables_are_there(two: Two) -> None:
    """A table's columns are fields of its rows, tags, or lie in the attributes."""
    shown = two.shown(STEP)
    missing: list[str] = []
    for board in BOARDS:
        found: dict[str, str] = {}
        tables = [panel for panel in board.panels() if panel["type"] == "table"]
        for one in (two.first, two.second):
            values, _ = choose(two.database, board, shown, cluster=(one,))
            for panel in tables:
                for target in panel.get("targets", []):
                    for row in rows(ask_target(two.database, target, shown, values)):
                        found[panel["title"]] = found.get(panel["title"], "") + _fields(row)
        for panel in tables:
            computed = {
                step["options"]["alias"]
                for step in panel["transformations"]
                if step["id"] == "calculateField"
            }
            (columns,) = (
                step["options"]["include"]["names"]
                for step in panel["transformations"]
                if step["id"] == "filterFieldsByName"
            )
            missing += [
                f"{panel['title']}: {column}"
                for column in columns
                if column not in computed | {"Time"}
                and f'"{column}"' not in found.get(panel["title"], "")
            ]

    assert missing == []


def test_rows_of_several_queries_are_of_one_time(two: Two) -> None:
    """Grafana makes one row of those that share time and tags."""
    shown = two.shown(STEP)
    for board in BOARDS:
        values, _ = choose(two.database, board, shown)
        for panel in board.panels():
            merged = any(step["id"] == "merge" for step in panel.get("transformations", []))
            asked = panel.get("targets", [])
            if merged and panel["type"] != "timeseries" and '"body"' not in asked[0]["query"]:
                times = {
                    row["time"]
                    for target in asked
                    for row in rows(ask_target(two.database, target, shown, values))
                }
                assert len(times) == 1, panel["title"]


@every_board
def test_annotations_of_the_chosen_cluster_are_found(board: Board, two: Two) -> None:
    """Each kind is there on one of the two clusters, with its text."""
    shown, found = two.shown(STEP), set()
    annotations = board.json()["annotations"]["list"]
    assert bool(annotations) == board.single
    for one in (two.first, two.second) if board.single else ():
        values, _ = choose(two.database, board, shown, cluster=(one,))
        for annotation in annotations:
            target = {**annotation["target"], "datasource": annotation["datasource"]}
            for row in rows(ask_target(two.database, target, shown, values)):
                assert row[target["textColumn"]]
                found.add(annotation["name"])
    assert found == {annotation["name"] for annotation in annotations}


def test_a_computation_can_be_chosen_and_holds_its_rows(two: Two) -> None:
    (board,) = [board for board in BOARDS if board.by_computation]
    shown = two.shown(STEP)
    _, options = choose(two.database, board, shown, cluster=(two.first,))
    computations = options["computation"]
    assert len(computations) > 3
    panels = {panel["title"]: panel for panel in board.panels() if "targets" in panel}
    tables = ("Task groups that took longest", "Tasks that took longest", "Exceptions of tasks")
    seen: dict[str, set[str]] = {title: set() for title in tables}
    for chosen in computations:
        values, _ = choose(two.database, board, shown, cluster=(two.first,), computation=(chosen,))
        for title in tables:
            (target,) = panels[title]["targets"]
            for row in rows(ask_target(two.database, target, shown, values)):
                told = json.loads(row["attributes"])[names.COMPUTATION_ID]
                assert told == chosen, title
                assert title == "Exceptions of tasks" or row["trace_id"]
                seen[title].add(told)
    assert all(seen.values())
    assert seen["Task groups that took longest"] == set(computations)


def test_percentiles_are_the_bounds_of_the_buckets_that_they_lie_in(two: Two) -> None:
    (board,) = [board for board in BOARDS if board.by_computation]
    shown = two.shown(STEP)
    values, _ = choose(two.database, board, shown, cluster=(two.second,))
    panels = {panel["title"]: panel for panel in board.panels() if "targets" in panel}
    over_all = panels["How long task runs take, over time"]["targets"]
    told = [
        [
            row["v"]
            for row in rows(ask_target(two.database, target, shown, values))
            if row["v"] is not None
        ]
        for target in over_all
    ]
    assert all(told)
    for half, most, nearly_all in zip(*told, strict=True):
        assert half <= most <= nearly_all
        for value in (half, most, nearly_all):
            assert any(value == pytest.approx(bound) for bound in names.DURATION_BOUNDS)
    (target,) = panels["How long 95 % of each prefix's runs take, over time"]["targets"]
    by_prefix = {
        row[names.TASK_PREFIX]: row["v"]
        for row in rows(ask_target(two.database, target, shown, values))
    }
    # It sleeps for 20 ms.
    assert by_prefix["work"] >= 0.03 * (1 - 1e-9)
    assert by_prefix["log"] <= by_prefix["work"]


def test_values_are_put_into_queries_as_grafana_puts_them() -> None:
    several = {"multi": True}
    anything = {"multi": True, "allValue": ".*"}
    single = {"multi": False}

    assert value_of(several, ("a.b", "c|d"), ()) == r"(a\.b|c\|d)"
    assert value_of(several, None, ("x", "y/z")) == r"(x|y\/z)"
    assert value_of(anything, None, ("x",)) == ".*"
    assert value_of(single, ("a(1)",), ()) == r"a\(1\)"
    query = '"a" =~ /^$user$/ AND "b" =~ /^$users$/ AND $timeFilter GROUP BY time($__interval)'
    assert expand(query, Shown(1, 2.5, 30), {"user": "(x)", "users": "y"}) == (
        '"a" =~ /^(x)$/ AND "b" =~ /^y$/ AND time >= 1000ms and time <= 2500ms GROUP BY time(30s)'
    )


def _measured(query: str) -> str:
    """Return the innermost query's measurement and conditions."""
    of_time = rf"(?:\$timeFilter|{re.escape(NOW)})"
    found = re.search(rf'.*FROM ("[^"]+" WHERE .*?{of_time})', query)
    assert found is not None, query
    return found[1]


def _fields(row: dict[str, Any]) -> str:
    return "".join(f'"{name}"' for name in row) + str(row.get("attributes", ""))
