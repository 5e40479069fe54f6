"""The flame graph of two runs: how wide a call is in one, and how its time differs in the other.

Callers are above. The width is the time of a call in the second run or, switched, in the first. The
hue says whether it took more time in the second run, or less.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Literal

from daskscope_service.insight.flame import Call
from daskscope_service.insight.wording import duration
from daskscope_service.web.template_filters import shorten_middle

#: Whose time the widths are.
Side = Literal["after", "before"]

ROW = 21
#: How many calls are drawn, the longest ones, and the least width of a call in per cent.
MOST_BOXES = 300
_LEAST_SHARE = 0.15
#: A change by less than this share of the call's time, or of all time, has no hue: profiles are
#: samples. From the second share on, the hue is strong.
_SOME, _LEAST_OF_ALL, _MUCH = 0.15, 0.01, 0.5
#: In pixels: the width of a character, the part of a box that its name cannot use, and the assumed
#: width of the graph.
_CHARACTER, _PADDING, _WIDE = 6.7, 8, 1150


@dataclass(slots=True, eq=False)
class Pair:
    """A call in both runs: its seconds of threads, 0.0 where it was not seen."""

    function: str
    file: str
    before: float = 0.0
    after: float = 0.0
    below: dict[tuple[str, str], Pair] = field(default_factory=dict)

    def seconds(self, side: Side) -> float:
        """Return its time in one of the runs."""
        return self.after if side == "after" else self.before


@dataclass(frozen=True, slots=True)
class Box:
    """The box of a call. ``x`` and ``width`` are per cent of the whole; ``y`` is in pixels.

    ``hue`` is more-2, more-1, same, less-1 or less-2.
    """

    x: float
    y: int
    width: float
    hue: str
    title: str
    label: str


@dataclass(frozen=True, slots=True)
class DifferenceGraph:
    """The graph. ``left_out`` counts calls that are too short or beyond :data:`MOST_BOXES`.

    ``elsewhere`` counts those below a drawn call that were seen only in the other run.
    """

    boxes: list[Box]
    height: int
    left_out: int
    elsewhere: int


def paired(before: Call, after: Call) -> Pair:
    """Return two trees of calls as one. A function is one call below each caller."""
    top = Pair(after.function, "")
    # Not by recursion: a stack may be thousands of calls deep.
    waiting: list[tuple[Pair, Call, Side]] = [(top, before, "before"), (top, after, "after")]
    while waiting:
        pair, call, side = waiting.pop()
        if side == "after":
            pair.after += call.seconds
        else:
            pair.before += call.seconds
        for key, below in call.below.items():
            waiting.append((pair.below.setdefault(key, Pair(*key)), below, side))
    return top


def difference_graph(top: Pair, side: Side) -> DifferenceGraph:
    """Return the graph of all calls; the widths are their time on ``side``."""
    whole = top.seconds(side)
    of_all = max(top.before, top.after)
    boxes = [_box(top, 0.0, 0, 100.0, of_all)]
    # The heap yields the longest call first. A call is never longer than its caller, so the caller
    # of each drawn call is drawn, too.
    heap: list[tuple[float, int, int, float, Pair]] = []
    pushed = left_out = elsewhere = 0

    def push(call: Pair, depth: int, x: float) -> None:
        nonlocal pushed, left_out, elsewhere
        for below in sorted(call.below.values(), key=lambda one: (one.function, one.file)):
            share = 100 * below.seconds(side) / whole if whole else 0.0
            if not below.seconds(side):
                elsewhere += 1
            elif share < _LEAST_SHARE:
                left_out += 1
            else:
                pushed += 1
                heapq.heappush(heap, (-below.seconds(side), pushed, depth + 1, x, below))
            x += share

    push(top, 0, 0.0)
    while heap and len(boxes) < MOST_BOXES:
        _, _, depth, x, call = heapq.heappop(heap)
        boxes.append(_box(call, x, depth, 100 * call.seconds(side) / whole, of_all))
        push(call, depth, x)
    boxes.sort(key=lambda box: (box.y, box.x))
    return DifferenceGraph(boxes, boxes[-1].y + ROW, left_out + len(heap), elsewhere)


def hue_of(call: Pair, of_all: float) -> str:
    """Return how much the time of a call changed; ``of_all`` is that of the longer run."""
    change, longer = call.after - call.before, max(call.after, call.before)
    if abs(change) < max(_SOME * longer, _LEAST_OF_ALL * of_all) or not change:
        return "same"
    strong = 2 if abs(change) >= _MUCH * longer else 1
    return f"{'more' if change > 0 else 'less'}-{strong}"


def _box(call: Pair, x: float, depth: int, width: float, of_all: float) -> Box:
    where = f"{call.file}\n" if call.file else ""
    most = int((width / 100 * _WIDE - _PADDING) / _CHARACTER)
    return Box(
        x=round(x, 3),
        y=depth * ROW,
        width=round(width, 3),
        hue=hue_of(call, of_all),
        title=f"{call.function}\n{where}{_took(call.before)} → {_took(call.after)}",
        label="" if most < 3 else shorten_middle(call.function, most),
    )


def _took(seconds: float) -> str:
    return f"about {duration(seconds)}" if seconds else "not seen"
