"""Where a trace goes on: W3C's trace context, as it comes with a graph's annotations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from distributed.scheduler import TaskState

#: The annotations that carry a trace context; named and written like W3C's headers.
ANNOTATION = "traceparent"
STATE = "tracestate"
#: Characters of a trace's state; a longer one is left out, as it cannot be cut.
MAX_STATE = 512

#: Tasks, each of another group, that are looked at for the context of their graph's caller.
FEW = 20

_TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})"
    r"-(?!0{16})(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span as others see it: ids in hex, and whether its trace is kept (sampled).

    ``state`` is what tracing systems tell each other beside it, as in the header ``tracestate``.
    """

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""

    def __str__(self) -> str:
        """Return it as the header ``traceparent``."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02}"


def parse(text: object, state: object = "") -> TraceContext | None:
    """Return the context in the header ``text``; None if it is none, for users write it too."""
    match = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if match is None or (match["version"] == "00" and match["more"] is not None):
        return None
    if not isinstance(state, str) or len(state) > MAX_STATE:
        state = ""
    return TraceContext(match["trace"], match["span"], bool(int(match["flags"], 16) & 1), state)


def of_computation(
    identity: str, trace_id: str, caller: TraceContext | None, *, sampled: bool
) -> TraceContext:
    """Return the context of a computation's span: its id is made of the computation's own.

    ``sampled`` says whether a trace without a caller is kept: the caller's says that itself.
    """
    if caller is None:
        return TraceContext(trace_id, identity[:16], sampled)
    return replace(caller, span_id=identity[:16])


def caller_of(annotated: Iterable[Mapping[str, Any] | None]) -> TraceContext | None:
    """Return the context in the first few annotations that a graph came with."""
    for told in islice(annotated, FEW):
        if told:
            context = parse(told.get(ANNOTATION), told.get(STATE))
            if context is not None:
                return context
    return None


def annotations_of(context: TraceContext) -> dict[str, str]:
    """Return the annotations that carry ``context``."""
    told = {ANNOTATION: str(context)}
    if context.state:
        told[STATE] = context.state
    return told


def take_back(told: Mapping[str, str] | None, task: TaskState) -> None:
    """Undo :func:`hand_on`, if it was done to ``task``."""
    annotations = task.annotations
    if told and annotations and annotations.get(ANNOTATION) == told[ANNOTATION]:
        task.annotations = {key: value for key, value in annotations.items() if key not in told}


def hand_on(told: dict[str, str], tasks: Iterable[TaskState]) -> None:
    """Annotate those ``tasks`` that have no context from their caller.

    Dask tells the workers what its tasks are annotated with.
    """
    for task in tasks:
        if not task.annotations:
            # Each its own: Dask's shuffle changes those of single tasks.
            task.annotations = told.copy()
        elif ANNOTATION not in task.annotations:
            task.annotations |= told
