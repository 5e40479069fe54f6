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

#: Annotations of one graph that are sent, and values of one that holds several.
MAX_ANNOTATIONS = 20
MAX_VALUES = 20
#: Of one annotation, before it is scrubbed and cut to what may leave.
MAX_CHARACTERS = 1_000

# How much time, as submit and map report it, may be between calls that have the same priority. What
# sends a graph as a whole (compute, persist, get) says 60 s.
_OF_SUBMIT = "100 ms"

#: Annotations that are reported elsewhere (a span's names, the trace) or meant for programs.
_NOT_REPORTED = frozenset({"span", ANNOTATION, STATE, CARRIED, CARRIED_STATE, "baggage"})


class Graph(NamedTuple):
    """A graph's message, without its tasks. ``nbytes`` is its size on the wire, None: not known.

    ``code`` holds Dask's ``SourceCode`` of the calling frames, outermost first. ``caller`` is where
    its trace goes on from. ``submitted`` marks calls of submit and map. ``of_task`` is
    the key of the task that sent it, None if none did, or it is not known.
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
    # Of bytes, as most are, Dask's own way to find out takes longer.
    return sum([len(frame) if type(frame) is bytes else nbytes(frame) for frame in frames])


def _texts(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return those that hold for the whole graph and can be sent, as short texts."""
    if not annotations:
        return {}
    texts = ((str(name)[:MAX_NAME], _text(name, value)) for name, value in annotations.items())
    return dict(islice(((name, text) for name, text in texts if text), MAX_ANNOTATIONS))


def _text(name: str, value: Any) -> str | None:
    if name in _NOT_REPORTED:
        return None
    if isinstance(value, list | tuple | set | frozenset):
        return _joined(map(_plain, value))
    # A mapping may have keys of tasks in it. Resources do not, unless they are given by key.
    if name == "resources" and isinstance(value, Mapping):
        amounts = ((resource, _plain(amount)) for resource, amount in value.items())
        return _joined(amount and f"{resource}={amount}" for resource, amount in amounts)
    return _plain(value)


def _plain(value: Any) -> str | None:
    if isinstance(value, str):
        return value[:MAX_CHARACTERS]
    # Python refuses to write out a number of thousands of digits.
    if isinstance(value, int) and value.bit_length() < 64:
        return str(value)
    return str(value) if isinstance(value, float) else None


def _joined(texts: Iterable[str | None]) -> str:
    few = list(islice((text for text in texts if text), MAX_VALUES + 1))
    if len(few) > MAX_VALUES:
        few[-1] = "…"
    return ", ".join(few)[:MAX_CHARACTERS]
