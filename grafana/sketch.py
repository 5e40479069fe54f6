"""Sketches of the dashboards: the panels in their places, for people who have no Grafana at hand.

What a panel would draw is only hinted at: nobody has seen Grafana draw it where this is made.
"""

from __future__ import annotations

from html import escape

from grafana.board import COLUMNS, Board
from grafana.transformations import Json

#: A column's width and a row's height, in pixels, at half of Grafana's size.
WIDTH, HEIGHT, GAP = 40, 15, 4
_MARGIN = 12
_TOP = 46

_STYLE = """
  text { font-family: system-ui, sans-serif; fill: #24292f; }
  .page { fill: #f4f5f5; } .panel { fill: #ffffff; stroke: #d0d7de; }
  .title { font-size: 11px; font-weight: 600; } .note { font-size: 10px; fill: #57606a; }
  .name { font-size: 18px; font-weight: 600; } .row { font-size: 12px; font-weight: 600; }
  .a { stroke: #3274d9; fill: none; } .b { stroke: #e0b400; fill: none; }
  .c { fill: #3274d9; fill-opacity: .35; } .d { fill: #8e8e8e; fill-opacity: .35; }
  .value { font-size: 20px; font-weight: 600; fill: #1a7f4b; text-anchor: middle; }
  @media (prefers-color-scheme: dark) {
    text { fill: #d8d9da; } .page { fill: #111217; }
    .panel { fill: #181b1f; stroke: #2c3235; } .note { fill: #9fa7b3; } .value { fill: #73bf69; }
  }
"""


def sketch(board: Board) -> str:
    """Return the dashboard as an SVG image."""
    panels = board.panels()
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = COLUMNS * WIDTH + 2 * _MARGIN, rows * HEIGHT + _TOP + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(board.title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="name" x="{_MARGIN}" y="30">Dask: {escape(board.title)}</text>',
        *(part for panel in panels for part in _panel(panel)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(panel: Json) -> list[str]:
    place = panel["gridPos"]
    x, y = _MARGIN + place["x"] * WIDTH, _TOP + place["y"] * HEIGHT
    width, height = place["w"] * WIDTH - GAP, place["h"] * HEIGHT - GAP
    title = escape(panel["title"])
    if panel["type"] == "row":
        return [f'<text class="row" x="{x}" y="{y + 11}">▾ {title}</text>']
    return [
        f'<g transform="translate({x} {y})">',
        f"<title>{escape(panel['description'])}</title>",
        f'<rect class="panel" width="{width}" height="{height}" rx="2"/>',
        f'<text class="title" x="8" y="15">{_cut(title, width - 16)}</text>',
        *_DRAWN[panel["type"]](panel, width, height),
        "</g>",
    ]


def _stat(_: Json, width: int, height: int) -> list[str]:
    return [f'<text class="value" x="{width // 2}" y="{height - 12}">#</text>']


def _lines(panel: Json, width: int, height: int) -> list[str]:
    low, span = height - 10, height - 36
    shape = (0.2, 0.5, 0.45, 0.8, 0.7, 0.9, 0.4, 0.3, 0.35)
    custom = panel["fieldConfig"]["defaults"]["custom"]
    if custom["drawStyle"] == "bars":
        wide = (width - 16) // len(shape)
        return [
            f'<rect class="c" x="{8 + at * wide}" y="{low - part * span:.0f}" '
            f'width="{wide - 6}" height="{part * span:.0f}"/>'
            for at, part in enumerate(shape)
        ]
    step = (width - 16) / (len(shape) - 1)
    points = [f"{8 + at * step:.0f},{low - part * span:.0f}" for at, part in enumerate(shape)]
    drawn = [f'<polyline class="a" points="{" ".join(points)}"/>']
    if custom["stacking"]["mode"] == "normal":
        drawn.insert(
            0, f'<polygon class="c" points="8,{low} {" ".join(points)} {width - 8},{low}"/>'
        )
    else:
        drawn.append(f'<line class="b" x1="8" y1="28" x2="{width - 8}" y2="28"/>')
    return drawn


def _bars(_: Json, width: int, height: int) -> list[str]:
    each = (height - 34) / 4
    return [
        f'<rect class="c" x="60" y="{26 + at * each:.0f}" '
        f'width="{(width - 72) * part:.0f}" height="{each - 6:.0f}"/>'
        for at, part in enumerate((0.9, 0.6, 0.35, 0.1))
    ]


def _table(panel: Json, width: int, height: int) -> list[str]:
    (titles,) = (
        list(step["options"]["renameByName"].values())
        for step in panel["transformations"]
        if step["id"] == "organize"
    )
    wide = (width - 16) / len(titles)
    heads = [
        f'<text class="note" x="{8 + at * wide:.0f}" y="32">{_cut(escape(title), wide - 4)}</text>'
        for at, title in enumerate(titles)
    ]
    lines = [
        f'<rect class="d" x="{8 + at * wide:.0f}" y="{y}" width="{wide * 0.7:.0f}" height="4"/>'
        for y in range(42, height - 8, 14)
        for at in range(len(titles))
    ]
    return heads + lines


_DRAWN = {
    "stat": _stat,
    "timeseries": _lines,
    "barchart": _bars,
    "bargauge": _bars,
    "table": _table,
}


def _cut(text: str, width: float) -> str:
    """Return what of a text has room; some six pixels a letter."""
    most = max(int(width / 5.8), 3)
    return text if len(text) <= most else text[: most - 1] + "…"
