"""The flame graph of two runs: widths of one of them, hues by what changed."""

from __future__ import annotations

import pytest

from daskscope_service.insight.flame import Call
from daskscope_service.jobs.flame_difference import Pair, difference_graph, hue_of, paired


def call(function: str, seconds: float, *below: Call) -> Call:
    return Call(
        function,
        "" if function == "all" else f"/home/ada/{function}.py",
        seconds=seconds,
        below={(one.function, one.file): one for one in below},
    )


BEFORE = call("all", 10.0, call("load", 6.0), call("old", 2.0), call("work", 2.0, call("inner", 2)))
AFTER = call("all", 16.0, call("load", 6.1), call("new", 1.9), call("work", 8.0, call("inner", 8)))


def test_the_width_is_the_time_after_and_the_hue_what_changed() -> None:
    boxes = {box.label: box for box in difference_graph(paired(BEFORE, AFTER), "after").boxes}
    assert {name: box.hue for name, box in boxes.items()} == {
        "all": "more-1", "load": "same", "new": "more-2", "work": "more-2", "inner": "more-2",
    }  # fmt: skip
    assert boxes["work"].width == pytest.approx(50)
    assert "about 2.0 s → about 8.0 s" in boxes["work"].title
    assert "not seen → about 1.9 s" in boxes["new"].title
    assert boxes["inner"].x == boxes["work"].x
    assert boxes["inner"].y > boxes["work"].y


def test_switched_the_width_is_the_time_before_and_what_is_gone_is_seen() -> None:
    boxes = {box.label: box for box in difference_graph(paired(BEFORE, AFTER), "before").boxes}
    assert boxes["old"].hue == "less-2"
    assert boxes["load"].width == pytest.approx(60)
    assert "new" not in boxes


def test_calls_of_the_other_run_alone_are_not_too_short() -> None:
    short = call("all", 10.0, call("load", 9.99), call("tiny", 0.01))
    for side, counts in (("after", (1, 2)), ("before", (0, 1))):
        graph = difference_graph(paired(BEFORE, short), side)  # type: ignore[arg-type]
        assert (graph.left_out, graph.elsewhere) == counts


def test_what_samples_cannot_tell_apart_has_no_hue() -> None:
    assert hue_of(Pair("f", "", 1.0, 1.1), 2.0) == "same"
    assert hue_of(Pair("f", "", 0.0, 0.1), 20.0) == "same"
    assert hue_of(Pair("f", "", 0.0, 0.0), 0.0) == "same"
    assert hue_of(Pair("f", "", 1.0, 1.3), 2.0) == "more-1"
    assert hue_of(Pair("f", "", 1.0, 0.4), 2.0) == "less-2"


def test_a_deep_stack_and_a_run_without_time_are_drawn() -> None:
    deep = call("f0", 1.0)
    top = call("all", 1.0, deep)
    for number in range(1, 5_000):
        below = call(f"f{number}", 1.0)
        deep.below[below.function, below.file] = below
        deep = below
    graph = difference_graph(paired(call("all", 0.0), top), "after")
    assert len(graph.boxes) == 300
    assert len(difference_graph(paired(call("all", 0.0), top), "before").boxes) == 1
