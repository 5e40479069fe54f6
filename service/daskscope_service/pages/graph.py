"""Task groups and what they depend on, laid out in layers from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daskscope_service.insight.wording import number
from daskscope_service.pages.filters import middle
from daskscope_service.reads.scope import Item

#: A drawing of more groups than this would show nothing.
MOST_NODES = 60

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 160, 44, 36, 14, 4


@dataclass(frozen=True, slots=True)
class Node:
    """A group's box; ``x`` and ``y`` are its upper left corner, ``done`` a width in pixels."""

    name: str
    label: str
    note: str
    colour: str
    x: float
    y: float
    done: float


@dataclass(frozen=True, slots=True)
class Graph:
    """What to draw. ``edges`` are SVG path data."""

    nodes: list[Node]
    edges: list[str]
    width: int
    height: int
    node_width: int = _WIDTH
    node_height: int = _HEIGHT


def layout(groups: Sequence[Item]) -> Graph | None:
    """Return the drawing of ``groups``, or None where one would tell nothing."""
    by_name = {group["name"]: group for group in groups}
    needs = {
        name: [other for other in group["dependencies"] if other in by_name and other != name]
        for name, group in by_name.items()
    }
    if not 1 < len(by_name) <= MOST_NODES or not any(needs.values()):
        return None
    layers = _layers(needs)
    tallest = max(len(layer) for layer in layers)
    places: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(layers):
        top = _MARGIN + (tallest - len(layer)) * (_HEIGHT + _GAP_Y) / 2
        for row, name in enumerate(layer):
            places[name] = (
                _MARGIN + column * (_WIDTH + _GAP_X),
                top + row * (_HEIGHT + _GAP_Y),
            )
    return Graph(
        nodes=[_node(by_name[name], *place) for name, place in places.items()],
        edges=[
            _edge(places[other], places[name]) for name, others in needs.items() for other in others
        ],
        width=len(layers) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN,
        height=tallest * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN,
    )


def _layers(needs: dict[str, list[str]]) -> list[list[str]]:
    """Put each name behind all that it needs, and beside what it is joined to."""
    depth = dict.fromkeys(needs, 0)
    # As many rounds as there are names settle every order; a circle just stops there.
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


def _node(group: Item, x: float, y: float) -> Node:
    tasks, completed = group["tasks"], group["completed"]
    if group["erred"]:
        colour = "bad"
    elif completed >= tasks:
        colour = "done"
    else:
        colour = "active" if completed or group["states"].get("processing") else "waiting"
    return Node(
        name=group["name"],
        label=middle(group["prefix"], 20),
        note=f"{number(completed)} / {number(tasks)}",
        colour=colour,
        x=x,
        y=y,
        done=_WIDTH * min(completed / tasks, 1) if tasks else 0,
    )


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT / 2
    x2, y2 = end[0], end[1] + _HEIGHT / 2
    bend = max(_GAP_X, x2 - x1) / 2
    return f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
