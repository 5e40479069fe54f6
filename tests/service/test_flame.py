"""Profiles merged, drawn and tabled: whose time it is, what is cut, and what says so."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import pytest

from daskscope_service.insight.flame import (
    Call,
    lines_of,
    merge,
    origin_of,
    path_to,
    seconds_matching,
)
from daskscope_service.pages.flame_graph import MOST_BOXES, flame_graph


def _line(function: str, line: int, file: str = "/home/li/job.py") -> dict[str, Any]:
    return {"file": file, "function": function, "line": line, "text": f"{function}()"}


def _profile(*nodes: tuple[int, dict[str, Any], int], seconds: float = 10.0) -> dict[str, Any]:
    lines = [line for i, (_, line, _) in enumerate(nodes)
             if line not in [other for _, other, _ in nodes[:i]]]  # fmt: skip
    return {
        "seconds": seconds,
        "lines": lines,
        "parent": [parent for parent, _, _ in nodes],
        "line": [lines.index(line) for _, line, _ in nodes],
        "samples": [samples for *_, samples in nodes],
    }


MAIN, LOAD, PARSE = _line("main", 1), _line("load", 2), _line("parse", 3)


def test_profiles_add_up_to_one_tree_whatever_a_sample_stands_for() -> None:
    often = _profile((-1, MAIN, 1000), (0, LOAD, 600), seconds=10)
    seldom = _profile((-1, MAIN, 10), (0, PARSE, 10), seconds=30)
    top = merge([often, seldom]).top
    (main,) = top.below.values()
    assert (top.samples, top.seconds) == (1010, 40)
    assert (main.samples, main.seconds) == (1010, 40)
    assert {call.function: call.seconds for call in main.below.values()} == {
        "load": 6,
        "parse": 30,
    }


def test_what_no_sample_was_of_is_told_where_it_is_known() -> None:
    one = _profile((-1, MAIN, 100), seconds=5)
    assert merge([one]).unsampled is None
    assert merge([one | {"unsampled": None}]).unsampled is None
    # Also of tasks of which there was not one sample.
    merged = merge([one | {"unsampled": 0.0}, _profile(seconds=0.0) | {"unsampled": 15.0}, one])
    assert (merged.unsampled, merged.top.seconds) == (15.0, 10.0)
    assert merged.unsampled_share == 0.6
    assert merge([one | {"unsampled": 0.0}]).unsampled_share == 0.0


def test_a_line_has_its_own_time_and_that_of_its_calls() -> None:
    merged = merge([_profile((-1, MAIN, 100), (0, LOAD, 70), (1, PARSE, 30))])
    found = {line.function: line for line in lines_of(merged, merged.top)}
    assert [(found[f].self_samples, found[f].samples) for f in ("main", "load", "parse")] == [
        (30, 100),
        (40, 70),
        (30, 30),
    ]
    assert found["load"].seconds == pytest.approx(7)


def test_a_line_that_calls_itself_counts_once() -> None:
    merged = merge([_profile((-1, MAIN, 100), (0, LOAD, 80), (1, MAIN, 60), (2, LOAD, 50))])
    found = {line.function: line for line in lines_of(merged, merged.top)}
    assert (found["main"].samples, found["main"].self_samples) == (100, 30)
    assert (found["load"].samples, found["load"].self_samples) == (80, 70)


def test_lines_within_a_call_are_those_below_it_and_no_others() -> None:
    merged = merge([_profile((-1, MAIN, 100), (0, LOAD, 60), (1, PARSE, 20), (0, PARSE, 40))])
    (main,) = merged.top.below.values()
    load = main.below["load", "/home/li/job.py"]
    found = {line.function: line.samples for line in lines_of(merged, load)}
    assert found == {"load": 60, "parse": 20}


def test_a_search_counts_what_matching_functions_called_once() -> None:
    top = merge([_profile((-1, MAIN, 100), (0, LOAD, 60), (1, LOAD, 50), (0, PARSE, 10))]).top
    assert seconds_matching(top, "load") == pytest.approx(6)
    assert seconds_matching(top, "job.py") == pytest.approx(10)
    assert seconds_matching(top, "nowhere") == 0


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        ("/home/li/job.py", "yours"),
        ("/tmp/ipykernel_91/2231.py", "yours"),
        ("/opt/lib/python3.12/site-packages/pandas/core/frame.py", "library"),
        ("/opt/lib/python3.12/site-packages/distributed/worker.py", "dask"),
        ("/home/li/src/dask/dask/base.py", "dask"),
        ("C:\\Python\\Lib\\site-packages\\numpy\\core.py", "library"),
        ("/usr/lib/python3.12/threading.py", "python"),
        ("<frozen importlib._bootstrap>", "python"),
    ],
)
def test_a_file_is_someones(file: str, whose: str) -> None:
    assert origin_of(file) == whose


def test_a_call_keeps_its_address_when_others_come() -> None:
    few = _profile((-1, MAIN, 100), (0, PARSE, 60))
    more = _profile((-1, LOAD, 100), (-1, MAIN, 100), (1, LOAD, 20), (1, PARSE, 60))
    boxes = flame_graph(merge([few]).top, [], "").boxes
    address = next(box.zoom for box in boxes if box.title.startswith("parse"))
    path = path_to(merge([more, few]).top, address)
    assert [call.function for _, call in path] == ["main", "parse"]
    assert path_to(merge([more]).top, "0" * 12) == []


def test_a_call_is_looked_for_in_a_deep_tree_without_much_memory() -> None:
    # A chain of calls, each of which also makes one that is looked at later.
    top = last = Call("all threads at work", "")
    for depth in range(1500):
        last.below["leaf", ""] = Call(f"leaf {depth}", "")
        last.below["next", ""] = last = Call(f"f {depth}", "")
    tracemalloc.start()
    try:
        assert path_to(top, "0" * 12) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_what_is_zoomed_into_is_as_wide_as_the_page_below_its_callers() -> None:
    top = merge([_profile((-1, MAIN, 100), (0, LOAD, 60), (1, PARSE, 30), (0, PARSE, 40))]).top
    address = next(b.zoom for b in flame_graph(top, [], "").boxes if b.title.startswith("load"))
    boxes = flame_graph(top, path_to(top, address), "").boxes
    assert [(b.title.split("\n")[0], b.width, b.above) for b in boxes] == [
        ("all threads at work", 100, True),
        ("main", 100, True),
        ("load", 100, False),
        ("parse", 50, False),
    ]


def test_calls_stand_below_their_callers_side_by_side() -> None:
    top = merge([_profile((-1, MAIN, 100), (0, LOAD, 60), (0, PARSE, 40))]).top
    load, parse = flame_graph(top, [], "parse").boxes[2:]
    assert (load.x, load.width, load.matches) == (0, 60, False)
    assert (parse.x, parse.width, parse.matches) == (60, 40, True)


def test_what_is_too_short_is_counted() -> None:
    names = (_line(f"f{i}", i) for i in itertools.count())
    top = merge([_profile((-1, MAIN, 10_000), *((0, next(names), 20) for _ in range(480)))]).top
    graph = flame_graph(top, [], "")
    assert len(graph.boxes) == MOST_BOXES
    assert graph.left_out == 480 + 2 - MOST_BOXES
    tiny = merge([_profile((-1, MAIN, 10_000), (0, LOAD, 1))]).top
    assert flame_graph(tiny, [], "").left_out == 1
