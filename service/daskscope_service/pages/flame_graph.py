"""Lays a tree of calls out as a flame graph: callers above, widths by time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from daskscope_service.insight.flame import Call, Origin, address_of, origin_of
from daskscope_service.insight.wording import duration, file_name, number
from daskscope_service.web.template_filters import shorten_middle

ROW = 21
#: How many calls are drawn, the longest ones, and the least width of a call in per cent.
MOST_BOXES = 300
_LEAST_SHARE = 0.15
#: In pixels: the width of a character, and the part of a box that its name cannot use.
_CHARACTER, _PADDING = 6.7, 8
#: In pixels: the assumed width of the graph in a wide window and in a narrow one.
_WIDE, _NARROW = 1150, 640

ORIGINS: dict[Origin, str] = {
    "yours": "your code",
    "library": "libraries",
    "dask": "Dask",
    "python": "Python itself",
}


@dataclass(frozen=True, slots=True)
class Box:
    """The box of one call. ``x`` and ``width`` are per cent of the whole; ``y`` is in pixels.

    ``zoom`` identifies the call to which the box links, "" for the whole graph. ``wide`` and
    ``narrow`` are its names in wide and in narrow windows, cut to fit. ``above``: the box is above
    the call that the reader zoomed to. ``matches``: the call matches the search, None without one.
    """

    x: float
    y: int
    width: float
    zoom: str
    title: str
    wide: str
    narrow: str
    origin: str
    above: bool
    matches: bool | None


@dataclass(frozen=True, slots=True)
class FlameGraph:
    """The graph. ``left_out`` counts calls that are too short or beyond :data:`MOST_BOXES`."""

    boxes: list[Box]
    height: int
    left_out: int


def flame_graph(top: Call, path: Sequence[tuple[str, Call]], find: str) -> FlameGraph:
    """Return the graph of the last call in ``path``, with its callers above; or of all calls.

    Calls that match ``find`` are marked.
    """
    rows = [("", top), *path]
    boxes = [
        _box(top, call, address, 0.0, depth, 100.0, find, above=depth < len(path))
        for depth, (address, call) in enumerate(rows)
    ]
    address, zoomed = rows[-1]
    whole = zoomed.seconds
    # The heap yields the longest call first. A call is never longer than its caller, so the caller
    # of each drawn call is drawn, too.
    heap: list[tuple[float, int, str, int, float, Call]] = []
    pushed = left_out = 0

    def push(address: str, call: Call, depth: int, x: float) -> None:
        nonlocal pushed, left_out
        for below in sorted(call.below.values(), key=lambda one: (one.function, one.file)):
            share = 100 * below.seconds / whole if whole else 0.0
            if share < _LEAST_SHARE:
                left_out += 1
            else:
                pushed += 1
                heapq.heappush(
                    heap,
                    (-below.seconds, pushed, address_of(address, below), depth + 1, x, below),
                )
            x += share

    push(address, zoomed, len(path), 0.0)
    while heap and len(boxes) < MOST_BOXES:
        _, _, address, depth, x, call = heapq.heappop(heap)
        width = 100 * call.seconds / whole
        boxes.append(_box(top, call, address, x, depth, width, find, above=False))
        push(address, call, depth, x)
    boxes.sort(key=lambda box: (box.y, box.x))
    return FlameGraph(boxes, boxes[-1].y + ROW, left_out + len(heap))


def _box(
    top: Call,
    call: Call,
    address: str,
    x: float,
    depth: int,
    width: float,
    find: str,
    *,
    above: bool,
) -> Box:
    share = call.seconds / top.seconds if top.seconds else 0.0
    amount = f"about {duration(call.seconds)} ({share:.1%} of all), {number(call.samples)} samples"
    origin = origin_of(call.file) if call.file else ""
    where = f"{call.file}:{call.line} ({ORIGINS[origin]})\n" if origin else ""
    return Box(
        x=round(x, 3),
        y=depth * ROW,
        width=round(width, 3),
        zoom=address,
        title=f"{call.function}\n{where}{amount}",
        wide=_label(call, width, _WIDE),
        narrow=_label(call, width, _NARROW),
        origin=origin or "all",
        above=above,
        matches=bool(call.file) and call.matches(find) if find else None,
    )


def _label(call: Call, width: float, pixels: int) -> str:
    most = int((width / 100 * pixels - _PADDING) / _CHARACTER)
    if most < 3:
        return ""
    place = f" · {file_name(call.file)}:{call.line}"
    if call.file and len(call.function) + len(place) <= most:
        return call.function + place
    return shorten_middle(call.function, most)
