"""The worker's side of trace context: activates a task's context while the task runs.

This file is also sent to the workers, as text, and runs there: workers may lack daskscope, and have
another Python than the scheduler. So it uses only ``daskscope.containment``, which is sent along,
and OpenTelemetry if it is installed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache, wraps
from typing import Any

from dask.base import annotate, get_annotations
from dask.highlevelgraph import HighLevelGraph
from distributed import Client
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker

from daskscope.containment import Contained, contain

#: Annotations by which users may set a trace context, with names and values of W3C's headers.
ANNOTATION = "traceparent"
STATE = "tracestate"

#: Their names in messages of clients to the scheduler and of the scheduler to workers. The receiver
#: removes them, so that no user sees them.
CARRIED = "daskscope.traceparent"
CARRIED_STATE = "daskscope.tracestate"

#: Annotations that carry a context.
Headers = dict[str, str]


def send_context_with_graphs(
    client: Client,
    current_span: Callable[[], Any],
    no_span: Any,
    drops: MutableMapping[str, int] | None = None,
    of_process: Headers | None = None,
) -> None:
    """Send the context of the current span, if there is one, with what ``client`` submits.

    ``current_span`` returns ``no_span`` if there is none. Then send ``of_process``, annotations
    with the context of what started this process.

    A ``traceparent`` in the user's own annotations has priority. It applies until the client
    closes. If the context cannot be read, the graph is sent without it, and that is counted in
    ``drops``.
    """
    before = vars(client).get("_graph_to_futures")
    if getattr(before, "of_daskscope", False):
        return
    # All ways to submit call this method, in the caller's own thread and context. A weak reference,
    # because Dask closes a client once it is not referenced.
    of_client = weakref.ref(client)
    of_process = of_process or {}
    headers = Contained(drops).around(_context_of, otherwise=None)

    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        submit = before or method_of_class(of_client(), "_graph_to_futures")
        context = headers(current_span, no_span, of_process)
        if not context:
            return submit(*args, **kwargs)
        if args and type(args[0]) is dict:
            # Dask before 2025.4 makes layers of it, which store the current annotations.
            args = (
                HighLevelGraph.from_collections(str(id(args[0])), args[0], dependencies=()),
                *args[1:],
            )
        with annotate(**context):
            return submit(*args, **kwargs)

    _graph_to_futures.of_daskscope = True  # type: ignore[attr-defined]
    setattr(client, "_graph_to_futures", _graph_to_futures)  # noqa: B010


def method_of_class(owner: Any, name: str) -> Any:
    """Return the attribute ``name`` of the class of ``owner``, bound to ``owner``.

    Look it up for each call: a program may patch the class at any time, with functions or other
    objects.
    """
    attribute = vars(type(owner)).get(name)
    if attribute is None:
        attribute = next(vars(kind)[name] for kind in type(owner).__mro__ if name in vars(kind))
    bind = getattr(type(attribute), "__get__", None)
    return attribute if bind is None else bind(attribute, owner, type(owner))


def _context_of(
    current_span: Callable[[], Any], no_span: Any, of_process: Headers
) -> Headers | None:
    """Return the annotations that carry the context of the current span, or of the process."""
    span = current_span()
    if span is no_span and not of_process:  # most programs, for each graph that they submit
        return None
    context = span.get_span_context()
    if ANNOTATION in get_annotations():
        return None
    if not context.is_valid:
        return of_process
    header = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"
    headers = {CARRIED: header}
    if context.trace_state:
        headers[CARRIED_STATE] = context.trace_state.to_header()
    return headers


def without_carried(message: dict[str, Any]) -> dict[str, Any]:
    """Return a ``message`` of Dask's without the context that its annotations carry."""
    annotations = message.get("annotations")
    if not annotations or CARRIED not in annotations:
        return message
    others = {
        name: value for name, value in annotations.items() if name not in (CARRIED, CARRIED_STATE)
    }
    return {**message, "annotations": others}


class TaskContext(WorkerPlugin):
    """Makes the span of a task's caller OpenTelemetry's current span while the task runs.

    The rest of the task's context does not change. For a task that was sent without a context,
    nothing changes. Graphs that a task submits carry the span that is current there.
    """

    def setup(self, worker: Worker) -> None:
        """Wrap the method that receives tasks and, with OpenTelemetry, those that run them."""
        self._active = True
        contained = Contained()
        # By the name of a method: the worker's own attribute before, and our replacement.
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        # The contexts of the tasks that the worker knows, as they arrived.
        self._contexts: weakref.WeakKeyDictionary[Any, Mapping[str, Any]] = (
            weakref.WeakKeyDictionary()
        )
        self._take_off_messages(worker)
        try:
            from opentelemetry.context import attach
            from opentelemetry.trace import INVALID_SPAN, get_current_span, set_span_in_context
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except Exception as error:  # usually it is not installed
            contain(error)
            return
        execute = self._as_before(worker, "execute")
        get_client = self._as_before(worker, "_get_client")
        extract = TraceContextTextMapPropagator().extract

        @lru_cache(maxsize=100)  # all tasks of a group have the same context
        def span_of(parent: str, state: str | None) -> Any:
            headers = {ANNOTATION: parent} | ({} if state is None else {STATE: state})
            return get_current_span(extract(headers))

        def activate(key: Any) -> None:
            task = worker.state.tasks.get(key)
            if task is None:
                return
            context = self._contexts.get(task)
            if context is None:
                own = task.annotations or {}
                parent, state = own.get(ANNOTATION), own.get(STATE)
            else:
                parent, state = context.get(CARRIED), context.get(CARRIED_STATE)
            if isinstance(parent, str):
                # The rest of the current context, such as baggage, stays. No detach is needed: Dask
                # runs this as an asyncio task with its own context variables, and copies them to
                # the thread of the user's function.
                span = span_of(parent, state if isinstance(state, str) else None)
                attach(set_span_in_context(span))

        @wraps(Worker.execute)  # Dask logs the function's name
        async def execute_in_context(key: Any, **arguments: Any) -> Any:
            if self._active:
                with contained:
                    activate(key)
            return await execute()(key, **arguments)

        def client_with_context(*args: Any, **kwargs: Any) -> Client:
            client: Client = get_client()(*args, **kwargs)
            if self._active:
                with contained:
                    send_context_with_graphs(client, get_current_span, INVALID_SPAN)
            return client

        self._put(worker, "execute", execute_in_context)
        self._put(worker, "_get_client", client_with_context)

    def teardown(self, worker: Worker) -> None:
        """Restore the methods."""
        self._active = False
        for name, (original, ours) in self._wrapped.items():
            # If other code has wrapped it since, ours stays inside it and does nothing.
            if vars(worker).get(name) is ours:
                if original is None:
                    delattr(worker, name)
                else:
                    setattr(worker, name, original)

    def _put(self, worker: Worker, name: str, ours: Any) -> None:
        self._wrapped[name] = vars(worker).get(name), ours
        setattr(worker, name, ours)

    def _as_before(self, worker: Worker, name: str) -> Callable[[], Any]:
        """Return a function that returns the method that is about to be wrapped."""
        before = vars(worker).get(name)
        return lambda: before or method_of_class(worker, name)

    def _take_off_messages(self, worker: Worker) -> None:
        """Remove the contexts from the messages that bring tasks, and store them.

        This stays until the worker ends: a scheduler may still send contexts after the plugin was
        removed.
        """
        handlers = worker.stream_handlers
        original = handlers["compute-task"]
        known = getattr(original, "of_daskscope", None)
        if known is not None:  # set by an earlier plugin
            self._contexts = known
            return
        contexts, contained = self._contexts, Contained()

        def compute_task(**message: Any) -> None:
            passed_on = message
            with contained:
                passed_on = without_carried(message)
            original(**passed_on)
            if passed_on is not message:
                with contained:
                    task = worker.state.tasks.get(message["key"])
                    if task is not None:
                        contexts[task] = message["annotations"]

        compute_task.of_daskscope = contexts  # type: ignore[attr-defined]
        handlers["compute-task"] = compute_task
