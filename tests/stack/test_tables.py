"""What Grafana's own code makes of the rows of tables, bars and of what is computed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from grafana.board import Board
from grafana.boards import BOARDS
from tests.grafana.npm import installed
from tests.stack.asking import Series, ask_target, choose
from tests.stack.clusters import Two

#: Grafana's code for what happens to rows; it imports React, though it draws nothing here.
PACKAGES = ("@grafana/data@13.2.3", "react@18.3.1", "react-dom@18.3.1")
PROGRAM = Path(__file__).with_name("tables.cjs")

Table = dict[str, list[Any]]


@pytest.fixture(scope="module")
def tables(two: Two, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], Table]:
    """What is shown, by dashboard, panel and chosen cluster, "" where several are."""
    asked: dict[tuple[str, str, str], dict[str, Any]] = {}
    shown = two.shown(1)
    for board in BOARDS:
        for cluster in (two.first, two.second) if board.single else ("",):
            chosen = (cluster,) if cluster else None
            values, _ = choose(two.database, board, shown, cluster=chosen)
            for panel in board.panels():
                if "transformations" in panel:
                    frames = [
                        _frame(ask_target(two.database, target, shown, values), target["refId"])
                        for target in panel["targets"]
                    ]
                    asked[board.uid, panel["title"], cluster] = {
                        "frames": [frame for frame in frames if frame["fields"]],
                        "transformations": panel["transformations"],
                    }
    folder = tmp_path_factory.mktemp("tables")
    (folder / "node_modules").symlink_to(installed(*PACKAGES) / "node_modules")
    shutil.copy(PROGRAM, folder)
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run(
        [node, PROGRAM.name],
        input=json.dumps(list(asked.values())),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    return {
        key: answer[0]
        for key, answer, question in zip(asked, answers, asked.values(), strict=True)
        if question["frames"]
    }


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_tables_have_their_columns_in_their_order(
    board: Board, tables: dict[tuple[str, str, str], Table]
) -> None:
    """Each column is there on one of the clusters, with a value."""
    for panel in board.panels():
        if panel["type"] != "table":
            continue
        steps = {step["id"]: step["options"] for step in panel["transformations"]}
        titles = list(steps["organize"]["renameByName"].values())
        of_panel = [
            table
            for (uid, title, _), table in tables.items()
            if (uid, title) == (board.uid, panel["title"])
        ]
        assert of_panel, panel["title"]
        filled = set()
        for table in of_panel:
            assert list(table) == [title for title in titles if title in table], panel["title"]
            filled |= {title for title, column in table.items() if any(column)}
            filled |= {title for title, column in table.items() if 0 in column}
        assert filled == set(titles), panel["title"]


def test_rows_of_several_queries_become_one_for_each_cluster(
    two: Two, tables: dict[tuple[str, str, str], Table]
) -> None:
    for key in (
        ("daskscope-fleet", "Clusters in this time"),
        ("daskscope-cost", "Cost by cluster"),
    ):
        table = tables[*key, ""]
        assert sorted(table["Cluster id"]) == sorted((two.first, two.second))
        assert all(value is not None for column in table.values() for value in column)


def test_a_part_of_what_each_cluster_costs_is_idle(
    tables: dict[tuple[str, str, str], Table],
) -> None:
    table = tables["daskscope-cost", "Cost by cluster", ""]
    for cost, idle, share in zip(table["Cost"], table["Idle cost"], table["Idle"], strict=True):
        assert 0 < share < 1
        assert 0 < idle < cost


def test_tasks_are_one_row_for_each_prefix(
    two: Two, tables: dict[tuple[str, str, str], Table]
) -> None:
    table = tables["daskscope-computation", "Tasks by prefix", two.first]
    rows = dict(zip(table["Task"], table["Finished"], strict=True))

    assert len(rows) == len(table["Task"])
    assert rows["work"] == 20
    assert rows["fail"] == 0
    failed = dict(zip(table["Task"], table["Failed"], strict=True))
    assert failed["fail"] == 3


def test_a_computation_leads_to_its_cluster(
    two: Two, tables: dict[tuple[str, str, str], Table]
) -> None:
    """Its link takes the cluster from the column of that name."""
    table = tables["daskscope-computation", "Computations that ended", two.second]

    assert set(table["Cluster id"]) == {two.second}
    assert all(table["Computation"])
    assert set(table["User"]) == {"bob"}


def _frame(series: Series, ref: str) -> dict[str, Any]:
    """Return the frame that Grafana's server makes of rows: time, tags, values."""
    if not series:
        return {"refId": ref, "fields": []}
    fields: list[dict[str, Any]] = [
        {
            "name": "Time",
            "type": "time",
            "values": [row[0] // 10**6 for one in series for row in one["values"]],
        }
    ]
    for tag in series[0].get("tags", {}):
        values = [one["tags"][tag] for one in series for _ in one["values"]]
        fields.append({"name": tag, "type": "string", "values": values})
    for place, column in enumerate(series[0]["columns"][1:], start=1):
        values = [row[place] for one in series for row in one["values"]]
        texts = any(isinstance(value, str) for value in values)
        fields.append({"name": column, "type": "string" if texts else "number", "values": values})
    return {"refId": ref, "fields": fields}
