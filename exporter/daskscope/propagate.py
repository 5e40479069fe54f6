"""Passes trace context from the caller into the graph, and from the scheduler to the tasks."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Mapping, MutableMapping

from distributed import Client
from distributed.scheduler import Scheduler
from opentelemetry import trace

from daskscope import task_context
from daskscope.containment import Contained
from daskscope.sent_code import put_on_workers, sent, texts_of

_TEXTS = texts_of(task_context)

#: The prefix of the worker plugins' names.
NAME = "daskscope-task-context"


#: A trace context as W3C writes it, and the most characters of what goes with it.
_HEADER, _MOST_STATE = re.compile(r"00(?:-[0-9a-f]{32})(?:-[0-9a-f]{16})-[0-9a-f]{2}"), 512


def send_context_with_graphs(client: Client, drops: MutableMapping[str, int]) -> None:
    """Send the context of OpenTelemetry's current span, if any, with what ``client`` submits.

    Without a current span, it is the context in the environment variables ``TRACEPARENT`` and
    ``TRACESTATE``, which a pipeline sets for its steps. A ``traceparent`` in the user's own
    annotations has priority. It applies until the client closes. If the context cannot be read, the
    graph is sent without it, and that is counted in ``drops``.
    """
    task_context.send_context_with_graphs(
        client, trace.get_current_span, drops, context_in(os.environ)
    )


def context_in(variables: Mapping[str, str]) -> task_context.Headers:
    """Return the annotations that carry the context in environment variables; {} without one."""
    header, state = variables.get("TRACEPARENT", ""), variables.get("TRACESTATE")
    if _HEADER.fullmatch(header) is None:
        return {}
    found = {task_context.CARRIED: header}
    if state and len(state) <= _MOST_STATE:
        found[task_context.CARRIED_STATE] = state
    return found


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
