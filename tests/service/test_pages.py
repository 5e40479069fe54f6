"""What pages are made of, without a browser: bars, graphs, names, vendored files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from daskscope_service import pages
from daskscope_service.insight.time import ACTIVITIES
from daskscope_service.insight.wording import file_name
from daskscope_service.pages.bars import state_bar
from daskscope_service.pages.graph import MOST_NODES, layout
from daskscope_service.pages.waterfall import Bar, DrawnRun, GroupRow
from daskscope_service.queries.cluster_filter import is_tag, tag_filter
from daskscope_service.telemetry.store import SeriesLine, rate
from daskscope_service.web.menus import main_menu
from daskscope_service.web.template_filters import ago, breakable, shorten_middle

VENDOR = Path(str(pages.__file__)).parent / "static" / "vendor"


def _group(name: str, *needs: str, **fields: Any) -> dict[str, Any]:
    defaults = {"prefix": name, "tasks": 4, "done": 4, "completed": 4, "erred": 0}
    defaults |= {"states": {}, "seconds": {}}
    return {"name": name, "dependencies": list(needs), **(defaults | fields)}


def test_vendored_files_are_those_of_their_packages() -> None:
    rows = re.findall(
        r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", (VENDOR / "VENDOR.md").read_text(), re.M
    )
    files = {file.name for file in VENDOR.iterdir()} - {"VENDOR.md"}
    assert {name for name, _ in rows} == files
    for name, digest in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_activity_has_a_colour_of_its_own(scheme: str) -> None:
    css = (VENDOR.parent / "app.css").read_text()
    begins = css.index("@media screen and (prefers-color-scheme: dark)")
    given = css[:begins] if scheme == "light" else css[begins : css.index("\n}\n", begins)]
    colours = dict(re.findall(r"(--[a-z-]+): (#[0-9a-f]{6});", given))
    fills = dict(re.findall(r"^\.fill-time-([a-z-]+) { fill: var\((--[a-z-]+)\); }$", css, re.M))
    assert set(ACTIVITIES) == set(fills)
    # The same, as finely as it was measured: never two of them on one bar.
    computing = {"compute", "thread-cpu", "busy"}
    assert len({fills[name] for name in computing}) == 1
    others = [colours[fills[name]] for name in ACTIVITIES if name not in computing]
    assert len({*others, colours[fills["compute"]], colours["--time-unknown"]}) == len(others) + 2
    # Nor is one that of tasks that are done, queued, released, or of another state.
    states = {"done", "released", "other"}
    assert not {colours[f"--fill-{name}"] for name in states} & set(others)


def test_templates_can_be_read() -> None:
    long = [
        f"{template.name}:{number}"
        for template in (VENDOR.parents[1] / "templates").iterdir()
        for number, line in enumerate(template.read_text().splitlines(), 1)
        if len(line) > 160
    ]
    assert long == []


@pytest.mark.parametrize(
    ("sampled", "drawn", "words"),
    [
        (3, 3, "3 of 3 task runs: all of them."),
        (None, 3, "a sample. Failed ones and the slowest come first, with a few others."),
        (3, 2, "2 of 3 task runs: a sample. Failed ones and the slowest come first, with a few "
               "others; 3 have a span."),
    ],
)  # fmt: skip
def test_the_waterfall_says_which_task_runs_it_draws(
    sampled: int | None, drawn: int, words: str
) -> None:
    bar = Bar(0.0, 100.0, "done", "0 s", "1 s")
    run = DrawnRun(bar, "done", "tcp://w", "")
    row = GroupRow("sum", "sum", "done", bar, 3, sampled, (run,) * drawn, died=False)
    assert words in row.shown


def test_the_menus_mark_where_the_reader_is() -> None:
    app = Flask(__name__)

    def marked(path: str) -> dict[str, str]:
        with app.test_request_context(path):
            return {link.words: link.current for link in main_menu() if link.current}

    assert marked("/") == {"Overview": "page"}
    assert marked("/clusters") == {"Clusters": "page"}
    assert marked("/clusters/c/computations/k") == {"Clusters": "true"}
    assert marked("/settings/tokens") == {"Settings": "true"}
    assert marked("/account") == {}


def test_templates_hold_no_inline_script_or_style() -> None:
    for template in (VENDOR.parents[1] / "templates").iterdir():
        text = template.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|hx-on|https?://", text), (
            template
        )
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script or 'type="application/json"' in script, template


def test_released_tasks_that_never_ran_are_not_done() -> None:
    segments = state_bar({"released": 10, "memory": 2}, done=5, erred=0)
    assert [(s.label, s.amount) for s in segments] == [
        ("done", "3"),
        ("in memory", "2"),
        ("not done", "7"),
    ]
    assert sum(s.share for s in segments) == pytest.approx(100)


def test_tasks_that_erred_are_erred_after_dask_forgot_them() -> None:
    segments = state_bar({"forgotten": 10}, done=7, erred=2)
    assert [(s.label, s.amount) for s in segments] == [
        ("done", "7"),
        ("erred", "2"),
        ("not done", "1"),
    ]


def test_a_state_that_dask_adds_is_shown_by_its_name() -> None:
    assert [s.label for s in state_bar({"stolen": 1}, 0, 0)] == ["stolen"]
    assert state_bar({}, 0, 0) == []


def test_groups_stand_behind_what_they_need() -> None:
    graph = layout([_group("c", "a", "b"), _group("a"), _group("b", "a"), _group("d", "gone")])
    assert graph is not None
    x = {node.name: node.x for node in graph.nodes}
    assert x["a"] < x["b"] < x["c"]
    assert len(graph.edges) == 3


def test_a_circle_of_groups_is_drawn_too() -> None:
    graph = layout([_group("a", "b"), _group("b", "a"), _group("c", "c")])
    assert graph is not None
    assert len(graph.nodes) == 3


def test_no_graph_where_it_would_tell_nothing() -> None:
    assert layout([]) is None
    assert layout([_group("a")]) is None
    assert layout([_group("a"), _group("b")]) is None


def test_of_very_many_groups_those_that_took_least_time_are_left_out() -> None:
    graph = layout([_group(str(i), "0") for i in range(200)])
    assert graph is not None
    assert (len(graph.nodes), graph.left_out) == (MOST_NODES, 200 - MOST_NODES)


def test_long_names_keep_both_ends() -> None:
    assert shorten_middle("short", 10) == "short"
    assert shorten_middle("0123456789abc", 10) == "01234…9abc"
    assert len(shorten_middle("x" * 99, 36)) == 36


def test_a_name_breaks_after_its_dots_and_stays_text() -> None:
    assert breakable("maria.lindqvist") == "maria.<wbr>lindqvist"
    assert breakable("C:\\jobs") == "C:\\<wbr>jobs"
    assert breakable("10.0.0.7:x@<b>.") == "10.<wbr>0.<wbr>0.<wbr>7:x@&lt;b&gt;."


@pytest.mark.parametrize("file", ["/home/li/job.py", "C:\\Users\\li\\job.py", "job.py"])
def test_of_a_file_its_name_is_shown_whichever_system_it_is_on(file: str) -> None:
    assert file_name(file) == "job.py"


def test_times_are_told_with_one_unit() -> None:
    assert [ago(1000 - s, 1000) for s in (-3, 4, 59, 61, 7300, 200_000)] == [
        "just now",
        "just now",
        "59 s ago",
        "1 min ago",
        "2 h ago",
        "2 d ago",
    ]


def test_a_counter_becomes_a_rate_also_over_a_restart() -> None:
    line = SeriesLine(
        {}, "value", "counter", "s", [0, 10_000, 20_000, 30_000], [5.0, 25.0, 4.0, 4.0]
    )
    assert rate(line).values == [2.0, 0.4, 0.0]
    assert rate(line).kind == "rate"
    gauge = SeriesLine({}, "value", "gauge", "s", [0], [5.0])
    assert rate(gauge) is gauge


def test_a_tag_is_a_link_only_where_there_is_a_filter_that_says_it() -> None:
    assert tag_filter("team", "a=b") == "team=a=b"
    for name, value in (("", ""), ("", "x"), ("a=b", "c"), ('a"', "c"), ("a", "\\")):
        assert tag_filter(name, value) is None
    assert is_tag("team=a=b")
    assert not is_tag("=a")
