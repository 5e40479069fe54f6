"""Trace context on its way: from the caller into the graph, and from the scheduler to the tasks."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from dask.base import annotate, get_annotations
from distributed import Client
from distributed.core import Status
from distributed.scheduler import Scheduler
from opentelemetry import trace

from daskscope.task_context import ANNOTATION, STATE, carried

#: How the names of the worker plugins begin.
NAME = "daskscope-task-context"


def send_context_with_graphs(client: Client) -> None:
    """Annotate what ``client`` submits with the context of OpenTelemetry's current span, if any.

    ``traceparent`` among the user's own annotations goes before. It ends with the client.
    """
    if getattr(vars(client).get("_graph_to_futures"), "of_daskscope", False):
        return
    # All ways to submit lead through this method, in the caller's own thread and context. The
    # client is not to hold itself: Dask closes it as soon as nobody else does.
    original = vars(client).get("_graph_to_futures") or weakref.WeakMethod(client._graph_to_futures)

    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        submit = original() if isinstance(original, weakref.WeakMethod) else original
        assert submit is not None
        with _annotated():
            return submit(*args, **kwargs)

    _graph_to_futures.of_daskscope = True  # type: ignore[attr-defined]
    setattr(client, "_graph_to_futures", _graph_to_futures)  # noqa: B010


def _annotated() -> Any:
    try:
        context = trace.get_current_span().get_span_context()
        if context.is_valid and ANNOTATION not in get_annotations():
            header = f"00-{context.trace_id:032x}-{context.span_id:016x}"
            headers = {ANNOTATION: f"{header}-{context.trace_flags & 1:02x}"}
            if context.trace_state:
                headers[STATE] = context.trace_state.to_header()
            return annotate(**headers)
    except Exception:  # noqa: S110  # whatever it is: a graph is sent without
        pass
    return nullcontext()


def activate_in_tasks(scheduler: Scheduler) -> Callable[[], None]:
    """Have present and future workers activate the context of each task. Return what ends it.

    Neither waits: the workers are told in the background.
    """
    # Each its own: a worker may hear of the end of one after the beginning of the next.
    name = f"{NAME}-{uuid.uuid4().hex[:8]}"

    # A worker may leave meanwhile. All others have it then, and those that come get it.
    async def board() -> None:
        with suppress(Exception):
            await scheduler.register_worker_plugin(None, carried(), name, idempotent=False)

    async def leave() -> None:
        with suppress(Exception):
            await scheduler.unregister_worker_plugin(None, name)

    scheduler.loop.add_callback(board)

    def stop() -> None:
        if scheduler.status is Status.running:
            scheduler.loop.add_callback(leave)

    return stop
