"""Reads a client's message about a graph, except its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from dask.typing import Key
from distributed.utils import nbytes

from daskscope.containment import guarded
from daskscope.observe.tasks.trace_context import TraceContext, caller_of, carried_by
from daskscope.protocol import MAX_NAME
from daskscope.task_context import ANNOTATION, CARRIED, CARRIED_STATE, STATE

#: Annotations of one graph that are sent, and values of an annotation that is a collection.
MAX_ANNOTATIONS = 20
MAX_VALUES = 20
#: Characters of one annotation, before it is scrubbed and cut to its final length.
MAX_CHARACTERS = 1_000

# Values are read by methods of these types: a user's subclass may do anything in its own.
_COLLECTIONS = (list, tuple, set, frozenset)

# The ``fifo_timeout`` of submit and map. Calls that send whole graphs (compute, persist, get) have
# 60 s.
_OF_SUBMIT = "100 ms"

#: Annotations that are sent otherwise (a span's names, the trace) or are meant for programs.
_NOT_REPORTED = frozenset({"span", ANNOTATION, STATE, CARRIED, CARRIED_STATE, "baggage"})


class Graph(NamedTuple):
    """A client's message with a graph, without the graph's tasks.

    ``nbytes`` is its size on the wire; None if unknown. ``code`` holds Dask's ``SourceCode`` of the
    calling frames, outermost first. ``caller`` is the trace context of the caller. ``submitted`` is
    whether submit or map sent it. ``of_task`` is the key of the task that sent it; None if no task
    did, or if that is unknown.
    """

    code: Sequence[Any]
    annotations: dict[str, str]
    nbytes: int | None
    caller: TraceContext | None
    submitted: bool
    of_task: Key | None


def read_graph(message: Mapping[str, Any], drops: Counter[str]) -> Graph:
    """Read a message of the kind ``update-graph``."""
    annotations = message.get("annotations") or {}
    return Graph(
        code=message.get("code") or (),
        annotations=guarded(drops, {}, _texts, annotations),
        nbytes=guarded(drops, None, _size, message),
        caller=guarded(drops, None, _caller, annotations) if annotations else None,
        submitted=message.get("fifo_timeout") == _OF_SUBMIT,
        of_task=message.get("submitting_task"),
    )


def _caller(annotations: Mapping[str, Any]) -> TraceContext | None:
    return carried_by(annotations) or caller_of([annotations])


def _size(message: Mapping[str, Any]) -> int | None:
    # Older versions of Dask send header and frames one by one.
    graph = message.get("expr_ser")
    frames = message.get("graph_frames") if graph is None else getattr(graph, "frames", None)
    if frames is None:
        return None
    # Most frames are bytes, for which len is faster than Dask's nbytes.
    return sum([len(frame) if type(frame) is bytes else nbytes(frame) for frame in frames])


def _texts(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return annotations of the whole graph that may be sent, as short texts."""
    if not annotations:
        return {}
    texts = ((str(name)[:MAX_NAME], _text(name, value)) for name, value in annotations.items())
    return dict(islice(((name, text) for name, text in texts if text), MAX_ANNOTATIONS))


def _text(name: str, value: Any) -> str | None:
    if name in _NOT_REPORTED:
        return None
    for kind in _COLLECTIONS:
        if issubclass(type(value), kind):
            return _joined(map(_plain, kind.__iter__(value)))
    # A mapping may contain task keys. Resources do not, unless they are given by key.
    if name == "resources" and issubclass(type(value), dict):
        amounts = ((_plain(resource), _plain(amount)) for resource, amount in dict.items(value))
        return _joined(amount and f"{resource}={amount}" for resource, amount in amounts)
    return _plain(value)


def _plain(value: Any) -> str | None:
    kind = type(value)
    if issubclass(kind, str):
        return str.__str__(value)[:MAX_CHARACTERS]
    if kind is bool:
        return str(value)
    # Python refuses to convert a number of thousands of digits to text.
    if issubclass(kind, int) and int.bit_length(value) < 64:
        return int.__repr__(value)
    return float.__repr__(value) if issubclass(kind, float) else None


def _joined(texts: Iterable[str | None]) -> str:
    few = list(islice((text for text in texts if text), MAX_VALUES + 1))
    if len(few) > MAX_VALUES:
        few[-1] = "…"
    return ", ".join(few)[:MAX_CHARACTERS]
