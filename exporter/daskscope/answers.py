"""The service's answers: dicts and lists that also read well in a console and in a notebook."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from daskscope.one_line import one_line

#: Columns of ids.
_IDS = frozenset({"id", "job"})
_NO_BREAK = "\N{NO-BREAK SPACE}"
#: Characters of a line of text.
_WIDTH = 88
#: Rows that a repr of a list shows.
_MOST_ROWS = 20
#: Characters of an id that are shown.
MAX_ID = 128
#: Parts of a comparison that its repr shows; the others are added up in one line.
_MOST_PARTS = 8

#: A column of a table: its heading, the field that it shows, and its width; the last one takes the
#: rest of the line.
Columns = Sequence[tuple[str, str, int]]

CLUSTERS: Columns = (
    ("STATUS", "status", 9),
    ("STARTED", "started_at", 18),
    ("UP FOR", "duration", 18),
    ("USER", "user", 16),
    ("WORKERS", "workers", 9),
    ("FAILURES", "failures", 10),
    ("FINDING", "cause", 24),
    ("NAME", "name", 24),
    ("ID", "id", 0),
)
COMPUTATIONS: Columns = (
    ("STATUS", "status", 11),
    ("STARTED", "started_at", 18),
    ("TOOK", "duration", 18),
    ("USER", "user", 16),
    ("TASKS", "tasks", 10),
    ("ERRED", "erred", 8),
    ("FINDING", "cause", 18),
    ("CLUSTER", "cluster_name", 24),
    ("TITLE", "title", 0),
)
EXCEPTIONS: Columns = (
    ("LAST SEEN", "last_at", 18),
    ("COUNT", "count", 8),
    ("CLUSTERS", "clusters", 10),
    ("TYPE", "type", 26),
    ("FUNCTION", "function", 26),
    ("MESSAGE", "message", 0),
)
EVENTS: Columns = (
    ("AT", "at", 18),
    ("CLUSTER", "cluster_name", 24),
    ("TOPIC", "topic", 28),
    ("MESSAGE", "message", 0),
)
FINDINGS: Columns = (
    ("BEGAN", "at", 18),
    ("SEVERITY", "severity", 10),
    ("RULE", "rule", 18),
    ("CLUSTER", "cluster_name", 20),
    ("COMPUTATION", "computation", 34),
    ("FINDING", "sentence", 0),
)
#: With findings that are effects of others.
FINDINGS_AND_EFFECTS: Columns = (*FINDINGS[:-1], ("EFFECT OF", "suppressed_by", 18), FINDINGS[-1])
#: Of one cluster or computation.
FINDINGS_OF_ONE: Columns = (
    ("SEVERITY", "severity", 10),
    ("RULE", "rule", 24),
    ("FINDING", "sentence", 0),
)
JOBS: Columns = (
    ("RAN LAST", "last_at", 18),
    ("TAKES", "duration", 18),
    ("RUNS", "runs", 8),
    ("BY", "level", 7),
    ("STATUS", "status", 11),
    ("USER", "user", 16),
    ("SAVES MOST", "saves_most", 18),
    ("ID", "id", 18),
    ("JOB", "title", 0),
)
JOB_CORRECTIONS: Columns = (
    ("AT", "at", 18),
    ("BY", "by", 20),
    ("JOB", "job", 18),
    ("WHAT", "kind", 7),
    ("ID", "id", 18),
    ("VALUE", "value", 0),
)
REPEATS: Columns = (
    ("RAN LAST", "last_at", 18),
    ("RUNS", "runs", 6),
    ("USERS", "people", 6),
    ("CLUSTERS", "clusters", 9),
    ("THREADS AGAIN", "seconds_again", 18),
    ("INSTEAD", "instead", 8),
    ("WORK", "title", 0),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an answer as people read it. ``link`` is an address, or None."""

    text: str
    indent: int = 0
    link: str | None = None


class Answer(dict[str, Any]):
    """An answer of the service: a dict whose repr is for people. ``dict(answer)`` shows it raw."""

    def lines(self) -> Iterator[Line]:
        """Yield its fields that are known."""
        width = max(map(len, self), default=0)
        for name, value in self.items():
            if value is not None and value != [] and value != {}:
                text = f"{value:,.6g}" if isinstance(value, float) else _cell(value)
                yield Line(f"{name:{width}}  {_fitted(text, _WIDTH - width).rstrip()}")

    def __repr__(self) -> str:
        return "\n".join(map(_wrapped, self.lines()))

    def _repr_html_(self) -> str:
        return f"<div>{''.join(map(_html_line, self.lines()))}</div>"


class FindingAnswer(Answer):
    """A finding: its sentence, then its evidence, what to do and what that saves."""

    def lines(self) -> Iterator[Line]:
        """Yield the sentence, and the rest below it."""
        yield Line(self["sentence"], link=self.get("url"))
        yield from self.details()

    def details(self, page: str | None = None) -> Iterator[Line]:
        """Yield all but the sentence. ``page`` is the address of its subject's page, if known."""
        page = page or self.get("url")
        for one in self["evidence"]:
            # An older service sends no text.
            text = one.get("text") or f"{one['value']:g} {one['unit']}"
            link = f"{page}#{one['link']}" if page and one.get("link") else None
            yield Line(f"{one['name']}: {text}", 1, link)
        if self["cost"] and self["currency"]:
            prices = " at list prices" if self["price_source"] == "list" else ""
            cost = f"{self['cost']:,.{2 if self['cost'] >= 0.1 else 4}f}"
            yield Line(f"cost: {cost} {self['currency']}, an estimate{prices}", 1)
        for action in self["actions"]:
            value = f" ({action['value']})" if action["value"] else ""
            yield Line(f"→ {action['text']}{value}", 1)
        if (saving := self["saving"]) is not None:
            yield Line(saving.get("text") or f"saves: {saving['formula']}", 2)
        if self["suppressed_by"] is not None:
            yield Line(f"an effect of: {self['suppressed_by']}", 1)
        if (mute := self["muted"]) is not None:
            # Only an item's own times are datetimes.
            until = str(mute["until_at"])[:10]
            yield Line(f"muted until {until} by {mute['by']}: {mute['reason']}", 1)


class WhyAnswer(Answer):
    """What happened to a cluster or a computation, and why."""

    def lines(self) -> Iterator[Line]:
        """Yield the headline, the causes with their details, and the page's address."""
        yield Line(self["headline"])
        own = [one for one in self["findings"] if one["suppressed_by"] is None]
        shown = [one for one in own if one["muted"] is None]
        for place, one in enumerate(shown):
            yield Line("")
            if place:  # the headline contains the first one's sentence
                yield Line(one["sentence"], 1)
            yield from one.details(self["url"])
        for one in own:
            if one["muted"] is not None:
                yield Line("")
                yield from one.lines()
        yield Line("")
        yield Line(self["url"], 1, self["url"])


class ComparisonAnswer(Answer):
    """How one run differs from another: parts that add up, then other differences."""

    def lines(self) -> Iterator[Line]:
        """Yield the sentence, the largest parts, their sum, and the candidates."""
        yield Line(self["sentence"])
        yield Line("")
        for part in self["parts"][:_MOST_PARTS]:
            change = f" ({part['change']})" if part["change"] else ""
            yield Line(f"{part['seconds']:+10.2f} s  {one_line(part['words'] + change)}", 1)
        if rest := self["parts"][_MOST_PARTS:]:
            yield Line(f"{sum(part['seconds'] for part in rest):+10.2f} s  all other parts", 1)
        yield Line(f"{self['seconds']:+10.2f} s  total", 1)
        if self["candidates"]:
            yield Line("")
            yield Line("Other differences:")
        for one in self["candidates"]:
            yield Line(f"- {one['words']}", 1)
        yield Line("")
        yield Line(self["url"], 1, self["url"])


class Answers(list[Any]):
    """A list of answers whose repr is a table with ``columns``, for people."""

    def __init__(self, items: Iterable[Any], columns: Columns) -> None:
        super().__init__(items)
        self.columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self), self.columns)

    def table(self) -> str:
        """Return all rows as text, below their headings."""
        return "\n".join(self._texts(self))

    def __repr__(self) -> str:
        if not self:
            return "[]"
        rest = [_more(len(self))] if len(self) > _MOST_ROWS else []
        return "\n".join([*self._texts(self[:_MOST_ROWS]), *rest])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{head.capitalize()}</th>" for head, _, _ in self.columns)
        rows = "".join(
            f"<tr>{''.join(self._html_cells(row))}</tr>" for row in list(self)[:_MOST_ROWS]
        )
        rest = f"<p>{html.escape(_more(len(self)))}</p>" if len(self) > _MOST_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"

    def _texts(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        lines = [{field: head for head, field, _ in self.columns}, *rows]
        # An id is never cut: people copy it into the next command.
        longest = {
            field: min(max(len(_cell(row.get(field))) for row in lines), MAX_ID) + 2
            for _, field, width in self.columns
            if width and field in _IDS
        }
        for row in lines:
            cells = (
                _fitted(_cell(row.get(field)), max(width, longest.get(field, width)))
                for _, field, width in self.columns
            )
            yield "".join(cells).rstrip()

    def _html_cells(self, row: Mapping[str, Any]) -> Iterator[str]:
        last = len(self.columns) - 1
        for place, (_, field, _) in enumerate(self.columns):
            text = _cell(row.get(field))
            yield f"<td>{_linked(text, row.get('url') if place == last else None)}</td>"


def _more(count: int) -> str:
    return (
        f"… {count - _MOST_ROWS:,} more of {count:,}; pandas.DataFrame(…) has all, with all fields"
    )


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    with suppress(ValueError, OverflowError, OSError):  # no time, or none of this machine's
        if isinstance(value, datetime):
            return value.astimezone().strftime("%Y-%m-%d %H:%M")
        if isinstance(value, float):
            return str(timedelta(seconds=round(value)))
    if isinstance(value, dict):
        if "rule" in value:  # the main cause
            return one_line(str(value["rule"]))
        return one_line(", ".join(f"{name}: {one}" for name, one in value.items()))
    return one_line(str(value))


def _fitted(text: str, width: int) -> str:
    if width and len(text) >= width:
        text = text[: width - 2] + "…"
    return text.ljust(width)


def _wrapped(line: Line) -> str:
    indent = "  " * line.indent
    # Unlike one_line(), this leaves spaces that align columns or hold a number to its unit.
    text = "".join(one if one.isprintable() or one == _NO_BREAK else " " for one in line.text)
    if line.text == line.link:  # an address on two lines is none
        return indent + text
    return textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def _html_line(line: Line) -> str:
    if not line.text:
        return "<br>"
    return f'<div style="margin-left: {2 * line.indent}em">{_linked(line.text, line.link)}</div>'


def _linked(text: str, link: str | None) -> str:
    shown = html.escape(one_line(text))
    if link is None or not link.startswith(("https://", "http://")):
        return shown
    address = html.escape(link, quote=True)
    return f'<a href="{address}" target="_blank" rel="noopener">{shown}</a>'
