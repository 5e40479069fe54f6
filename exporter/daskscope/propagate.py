"""Passes trace context from the caller into the graph, and from the scheduler to the tasks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, MutableMapping

from distributed import Client
from distributed.scheduler import Scheduler
from opentelemetry import trace

from daskscope import task_context
from daskscope.containment import Contained
from daskscope.sent_code import put_on_workers, sent, texts_of

_TEXTS = texts_of(task_context)

#: The prefix of the worker plugins' names.
NAME = "daskscope-task-context"


def send_context_with_graphs(
    client: Client, of_process: task_context.Headers, drops: MutableMapping[str, int]
) -> None:
    """Send the context of OpenTelemetry's current span, if any, with what ``client`` submits.

    Without a current span, it is ``of_process``: annotations with the context of the pipeline that
    started this process, {} without one. A ``traceparent`` in the user's own annotations has
    priority. It applies until the client closes. If the context cannot be read, the graph is sent
    without it, and that is counted in ``drops``.
    """
    task_context.send_context_with_graphs(
        client, trace.get_current_span, trace.INVALID_SPAN, drops, of_process
    )


def activate_in_tasks(
    scheduler: Scheduler, ready: Callable[[], None], drops: MutableMapping[str, int]
) -> Callable[[], None]:
    """Make all workers activate the context of each task. Return a function to stop it.

    Neither waits: the workers get the plugin in the background. ``ready`` is called on the event
    loop once they have it.
    """
    # A unique name: a worker may get the end of one plugin after the start of the next.
    name = f"{NAME}-{uuid.uuid4().hex[:8]}"
    return put_on_workers(
        scheduler, name, lambda: sent(_TEXTS, "TaskContext"), Contained(drops), ready
    )
