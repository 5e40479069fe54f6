"""Lays out task groups and their dependencies as a graph, in layers from left to right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daskscope_service.db.scope import Item
from daskscope_service.insight.wording import duration, number, percent
from daskscope_service.web.template_filters import shorten_middle

#: The most boxes in a graph: with more, nobody could read it.
MOST_NODES = 60

_WIDTH, _GAP_X, _GAP_Y, _MARGIN = 176, 36, 14, 4
#: In pixels: the height of a group that took no time, and how much higher the longest group is.
_HEIGHT, _TALLER = 58, 56

#: The activities that take time of the workers.
_SPENT = ("compute", "transfer", "disk-read", "disk-write", "other")
#: The counts that are added up when groups are joined.
_COUNTS = ("tasks", "done", "completed", "erred")


@dataclass(frozen=True, slots=True)
class Node:
    """A group's box. ``x`` and ``y`` are its upper left corner in pixels.

    ``notes`` are the lines below its label. ``colour`` shows its state. ``done`` is the width in
    pixels of the bar that shows how many of its tasks are done.
    """

    name: str
    label: str
    notes: tuple[str, ...]
    colour: str
    x: float
    y: float
    height: float
    done: float


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph. ``edges`` are SVG path data; sizes are in pixels.

    If ``joined``, each box is all groups of one prefix. ``left_out`` counts the boxes beyond
    :data:`MOST_NODES`, which are those that took the least time.
    """

    nodes: list[Node]
    edges: list[str]
    width: int
    height: int
    joined: bool
    left_out: int
    node_width: int = _WIDTH


def layout(groups: Sequence[Item]) -> Graph | None:
    """Return the graph of ``groups``; None if it would have only one box or no edges."""
    joined = len(groups) > MOST_NODES
    boxes = _by_prefix(groups) if joined else list(groups)
    boxes.sort(key=spent_in, reverse=True)
    by_name = {group["name"]: group for group in boxes[:MOST_NODES]}
    by_name = {name: by_name[name] for name in _in_order(groups, by_name, joined)}
    needs = {
        name: [other for other in group["dependencies"] if other in by_name and other != name]
        for name, group in by_name.items()
    }
    if len(by_name) < 2 or not any(needs.values()):
        return None
    most = max(map(spent_in, by_name.values()))
    heights = {
        name: round(_HEIGHT + (_TALLER * spent_in(group) / most if most else 0), 1)
        for name, group in by_name.items()
    }
    whole = sum(map(spent_in, boxes))
    layers = _layers(needs)
    tallest = max(_height(layer, heights) for layer in layers)
    places: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(layers):
        y = _MARGIN + (tallest - _height(layer, heights)) / 2
        for name in layer:
            places[name] = (_MARGIN + column * (_WIDTH + _GAP_X), y)
            y += heights[name] + _GAP_Y
    return Graph(
        nodes=[
            _node(by_name[name], *place, heights[name], whole) for name, place in places.items()
        ],
        edges=[
            _edge(places[other], heights[other], places[name], heights[name])
            for name, others in needs.items()
            for other in others
        ],
        width=len(layers) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN,
        height=round(tallest) + 2 * _MARGIN,
        joined=joined,
        left_out=len(boxes) - len(by_name),
    )


def spent_in(group: Item) -> float:
    """Return the seconds that workers spent on a group's tasks, as far as they were measured."""
    return sum(float(group["seconds"].get(name, 0)) for name in _SPENT)


def state_of(group: Item) -> tuple[str, str]:
    """Return the state of a task group as a word, and the name of its colour."""
    if group["erred"]:
        return "erred", "bad"
    if group["done"] >= group["tasks"]:
        return "done", "done"
    if group["completed"] or group["states"].get("processing"):
        return "partly done", "active"
    return "not done", "waiting"


def _by_prefix(groups: Sequence[Item]) -> list[Item]:
    """Return one group per prefix, which sums up all groups with that prefix."""
    prefix_of = {group["name"]: group["prefix"] for group in groups}
    of_prefix: dict[str, list[Item]] = {}
    for group in groups:
        of_prefix.setdefault(group["prefix"], []).append(group)
    return [
        {
            "name": prefix,
            "prefix": prefix,
            # Without duplicates: the groups of one prefix can have a hundred thousand dependencies.
            "dependencies": dict.fromkeys(
                prefix_of.get(other) for group in some for other in group["dependencies"]
            ),
            "states": _added_up(group["states"] for group in some),
            "seconds": _added_up(group["seconds"] for group in some),
        }
        | {count: sum(group[count] for group in some) for count in _COUNTS}
        for prefix, some in of_prefix.items()
    ]


def _added_up(amounts: Iterable[Mapping[str, Any]]) -> Counter[str]:
    whole: Counter[str] = Counter()
    for one in amounts:
        whole.update(one)
    return whole


def _in_order(groups: Sequence[Item], kept: Container[str], joined: bool) -> list[str]:
    in_order = dict.fromkeys(group["prefix" if joined else "name"] for group in groups)
    return [name for name in in_order if name in kept]


def _height(layer: Sequence[str], heights: Mapping[str, float]) -> float:
    return sum(heights[name] + _GAP_Y for name in layer) - _GAP_Y


def _layers(needs: dict[str, list[str]]) -> list[list[str]]:
    """Return the names in layers: each right of all that it needs, and near them in height."""
    depth = dict.fromkeys(needs, 0)
    # One round per name is enough for any graph, and ends the loop if the graph has a cycle.
    for _ in needs:
        moved = False
        for name, others in needs.items():
            least = max((depth[other] + 1 for other in others), default=0)
            if depth[name] < least < len(needs):
                depth[name], moved = least, True
        if not moved:
            break
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, column in depth.items():
        layers[column].append(name)
    layers = [layer for layer in layers if layer]
    row = {name: float(place) for layer in layers for place, name in enumerate(layer)}
    for layer in layers[1:]:
        layer.sort(
            key=lambda name: sum(row[other] for other in needs[name]) / (len(needs[name]) or 1)
        )
        row |= {name: float(place) for place, name in enumerate(layer)}
    return layers


def _node(group: Item, x: float, y: float, height: float, whole: float) -> Node:
    tasks, done = group["tasks"], group["done"]
    word, colour = state_of(group)
    seconds = spent_in(group)
    share = f", {percent(seconds / whole)}" if whole else ""
    return Node(
        name=group["name"],
        label=shorten_middle(group["prefix"], 22),
        notes=(
            f"{number(done)} / {number(tasks)} {word}",
            f"{duration(seconds)}{share}" if seconds else "no time measured",
        ),
        colour=colour,
        x=x,
        y=round(y, 1),
        height=height,
        done=_WIDTH * done / tasks if tasks else 0,
    )


def _edge(
    start: tuple[float, float], height: float, end: tuple[float, float], end_height: float
) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + height / 2
    x2, y2 = end[0], end[1] + end_height / 2
    bend = max(_GAP_X, x2 - x1) / 2
    return f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
