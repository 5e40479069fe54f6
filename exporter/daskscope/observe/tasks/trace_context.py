"""W3C trace context, read from and written to a graph's or a task's annotations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Any

from daskscope.task_context import ANNOTATION, CARRIED, CARRIED_STATE, STATE

#: Characters of a ``tracestate``. A longer one is left out, because it cannot be cut.
MAX_STATE = 512

#: Annotations that are searched for the context of a graph's caller.
FEW = 20

_TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})"
    r"-(?!0{16})(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)

#: The most members of a ``tracestate``, and what one is, by W3C. OpenTelemetry logs a warning for
#: each other one wherever it reads it, and a message with a lone surrogate cannot be sent.
MAX_MEMBERS = 32
_NAME = r"[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}"
_MEMBER = re.compile(rf"(?:{_NAME})=[ -+\--<>-~]{{0,255}}[!-+\--<>-~]")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A reference to a span: ids in hex, and whether its trace is sampled. ``state`` is the value
    of the header ``tracestate``.
    """

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""

    def __str__(self) -> str:
        """Return the value of the header ``traceparent``."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02}"


def parse(text: object, state: object = "") -> TraceContext | None:
    """Return the context in a ``traceparent`` header; None if it is invalid: users may write it."""
    match = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if match is None or (match["version"] == "00" and match["more"] is not None):
        return None
    if not isinstance(state, str) or not _is_state(state):
        state = ""
    return TraceContext(match["trace"], match["span"], bool(int(match["flags"], 16) & 1), state)


def _is_state(text: str) -> bool:
    """Return whether ``text`` is a ``tracestate`` that all who read it accept."""
    if len(text) > MAX_STATE:  # before it is split: users may set any
        return False
    members = [member for one in text.split(",") if (member := one.strip(" "))]
    return len(members) <= MAX_MEMBERS and all(map(_MEMBER.fullmatch, members))


def of_computation(
    identity: str, trace_id: str, caller: TraceContext | None, *, sampled: bool
) -> TraceContext:
    """Return the context of a computation's span, whose id is derived from the computation's id.

    ``sampled`` applies to a trace without a caller. Else the caller's flag applies.
    """
    if caller is None:
        return TraceContext(trace_id, identity[:16], sampled)
    return replace(caller, span_id=identity[:16])


def of_group(computation: TraceContext, name: str) -> TraceContext:
    """Return the context of a task group's span, whose id is derived from computation and ``name``.

    So tasks can carry it before the span is made.
    """
    # Encoded as the name is when it is sent: see daskscope.sendable.
    made_of = computation.span_id.encode() + name.encode(errors="replace")
    return replace(computation, span_id=blake2b(made_of, digest_size=8).hexdigest())


def caller_of(annotated: Iterable[Mapping[str, Any] | None]) -> TraceContext | None:
    """Return the first context in users' annotations of a graph; only a few are searched."""
    for one in islice(annotated, FEW):
        if one:
            context = parse(one.get(ANNOTATION), one.get(STATE))
            if context is not None:
                return context
    return None


def carried_by(annotations: Mapping[str, Any]) -> TraceContext | None:
    """Return the context that ``annotations`` carry in a message."""
    return parse(annotations.get(CARRIED), annotations.get(CARRIED_STATE))


def carried_from(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that carry the context in environment variables; {} without one.

    A pipeline sets ``TRACEPARENT`` and ``TRACESTATE`` for its steps.
    """
    context = parse(variables.get("TRACEPARENT"), variables.get("TRACESTATE", ""))
    return to_carry(context) if context is not None else {}


def to_carry(context: TraceContext) -> dict[str, str]:
    """Return the annotations that carry ``context`` in a message."""
    carried = {CARRIED: str(context)}
    if context.state:
        carried[CARRIED_STATE] = context.state
    return carried
