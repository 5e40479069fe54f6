"""Reading a computation's spans: the interface, and the service's own table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Select, or_

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import span
from daskscope_service.db.scope import MOST_BYTES, weight
from daskscope_service.db.unreadable import Unreadable

#: How many spans of one computation are read: its own, its groups', then its task runs'.
MOST_SPANS = 2000
#: Spans that are read together.
_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Span:
    """One span, its times in seconds since the Unix epoch.

    ``status`` is ``unset``, ``ok`` or ``error``. ``attributes`` are None if they cannot be
    decrypted; ``unreadable`` then says why, to follow "it is".
    """

    span_id: str
    parent_span_id: str | None
    name: str
    started_at: float
    stopped_at: float
    status: str
    attributes: dict[str, Any] | None
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of a computation: its own, then those of task groups, then those of task runs.

    Those of one level are sorted by their start. ``more``: there are others. If not all task runs
    fit, the failed ones are read first, then the longest ones.
    """

    spans: tuple[Span, ...] = ()
    more: bool = False


class SpanReader(Protocol):
    """Reads spans."""

    def of_computation(
        self, workspace: str, trace_id: str, computation_id: str, most: int = MOST_SPANS
    ) -> Trace:
        """Return at most ``most`` spans of a computation; none if none arrived.

        Raises
        ------
        Unavailable
            The spans are stored in another database, which does not answer.
        """


class EmbeddedSpans:
    """Reads spans from the service's own table: a :class:`SpanReader`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of_computation(
        self, workspace: str, trace_id: str, computation_id: str, most: int = MOST_SPANS
    ) -> Trace:
        """Return the spans of a computation; see :meth:`SpanReader.of_computation`."""
        root = span_id_of(computation_id)
        of_trace = select_in(workspace, span).where(span.c.trace_id == trace_id)
        upper = of_trace.where(or_(span.c.span_id == root, span.c.parent_span_id == root)).order_by(
            span.c.span_id != root, span.c.started_at, span.c.span_id
        )
        with self._engine.connect() as connection:
            rows, room = _first(connection, of_trace, upper, most + 1, MOST_BYTES)
            left = most - len(rows)
            # By their ids: in a subquery, before PostgreSQL has statistics of the table, it may
            # compare each span of a trace with each other one.
            groups = [one.span_id for one in rows if one.parent_span_id == root]
            lower = of_trace.where(span.c.parent_span_id.in_(groups)).order_by(
                span.c.status != "error", (span.c.started_at - span.c.stopped_at), span.c.span_id
            )
            tasks: list[Span] = []
            if left >= 0 and room >= 0:
                tasks, room = _first(connection, of_trace, lower, left + 1, room)
        kept = sorted(tasks[: max(left, 0)], key=lambda one: (one.started_at, one.span_id))
        return Trace((*rows[:most], *kept), more=left < 0 or len(tasks) > left or room < 0)


def _first(
    connection: Connection, of_trace: Select[Any], chosen: Select[Any], most: int, room: int
) -> tuple[list[Span], int]:
    """Return the first of the ``chosen`` spans, and the bytes of ``room`` that are left.

    There are at most ``most``. Reading stops once less than nothing is left.
    """
    # Sorted without their attributes: those of one span may have half a megabyte.
    ids = connection.execute(chosen.with_only_columns(span.c.span_id).limit(most)).scalars().all()
    spans: list[Span] = []
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        rows = connection.execute(of_trace.where(span.c.span_id.in_(some)))
        by_id = {row.span_id: _span(row) for row in rows}
        for id in some:
            if id in by_id:  # else it was removed a moment ago
                spans.append(by_id[id])
                room -= weight(by_id[id].attributes or {})
            if room < 0:
                return spans, room
    return spans, room


def span_id_of(computation_id: str) -> str:
    """Return the id of a computation's own span: the plugin derives it from the computation's."""
    return computation_id[:16]


def _span(row: Any) -> Span:
    attributes = row.attributes
    lost = isinstance(attributes, Unreadable)
    return Span(
        row.span_id,
        row.parent_span_id,
        row.name,
        row.started_at,
        row.stopped_at,
        row.status,
        None if lost else attributes,
        str(attributes) if lost else None,
    )
