"""The worker's side of trace context: activates a task's context while the task runs.

This file is also sent to the workers, as text, and run there (:func:`carried`): they may lack
daskscope, and have another Python than the scheduler. So it needs nothing of ours but
``daskscope.containment``, which goes along, and OpenTelemetry only where it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache, partial, wraps
from typing import Any

from dask.base import annotate, get_annotations
from dask.highlevelgraph import HighLevelGraph
from distributed import Client
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker

from daskscope.containment import Contained, contain

#: The annotations that users may give a trace context by; named and written like W3C's headers.
ANNOTATION = "traceparent"
STATE = "tracestate"

#: Their names on the way, in the messages of clients to the scheduler and of the scheduler to
#: workers: whoever gets the message takes them out, so that no user meets them.
CARRIED = "daskscope.traceparent"
CARRIED_STATE = "daskscope.tracestate"

#: Annotations that carry a context.
Headers = dict[str, str]


def send_context_with_graphs(
    client: Client,
    current_span: Callable[[], Any],
    drops: MutableMapping[str, int] | None = None,
) -> None:
    """Send the context of the current span, if there is one, with what ``client`` submits.

    ``traceparent`` among the user's own annotations goes before. It ends with the client. Where
    the context cannot be read the graph goes without, and that is counted in ``drops``.
    """
    before = vars(client).get("_graph_to_futures")
    if getattr(before, "of_daskscope", False):
        return
    # All ways to submit lead through this method, in the caller's own thread and context. The
    # client is not to hold itself: Dask closes it as soon as nobody else does.
    of_client = weakref.ref(client)
    headers = Contained(drops).around(partial(_context_of, current_span), otherwise=None)

    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        submit = before or method_of_class(of_client(), "_graph_to_futures")
        found = headers()
        if not found:
            return submit(*args, **kwargs)
        if args and type(args[0]) is dict:
            # Dask before 2025.4 makes layers of it, which keep the annotations that they find.
            args = (
                HighLevelGraph.from_collections(str(id(args[0])), args[0], dependencies=()),
                *args[1:],
            )
        with annotate(**found):
            return submit(*args, **kwargs)

    _graph_to_futures.of_daskscope = True  # type: ignore[attr-defined]
    setattr(client, "_graph_to_futures", _graph_to_futures)  # noqa: B010


def method_of_class(owner: Any, name: str) -> Any:
    """Return what ``owner`` has of this name if nothing was put into itself.

    Each time anew, and of whatever kind: a program may patch the class at any time, by functions
    or by objects of its own.
    """
    found = next(vars(kind)[name] for kind in type(owner).__mro__ if name in vars(kind))
    bind = getattr(type(found), "__get__", None)
    return found if bind is None else bind(found, owner, type(owner))


def _context_of(current_span: Callable[[], Any]) -> Headers:
    """Return the annotations that carry the context of the current span, if there is one."""
    context = current_span().get_span_context()
    if not context.is_valid or ANNOTATION in get_annotations():
        return {}
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
    """Makes the span of a task's caller OpenTelemetry's current one while the task runs.

    It is all that is changed of the context that the task would have otherwise, and where a task
    was sent without one, nothing is. What a task submits by itself carries the span on that is
    current there.
    """

    def setup(self, worker: Worker) -> None:
        """Wrap the methods that take, and run, a task; the latter where OpenTelemetry is."""
        self._active = True
        contained = Contained()
        # What was put into the worker before, by its name, and ours in its place.
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        # Of those that Dask knows, as they came.
        self._contexts: weakref.WeakKeyDictionary[Any, Mapping[str, Any]] = (
            weakref.WeakKeyDictionary()
        )
        self._take_off_messages(worker)
        try:
            from opentelemetry.context import attach
            from opentelemetry.trace import get_current_span, set_span_in_context
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except Exception as error:  # mostly it is not there
            contain(error)
            return
        execute = self._as_before(worker, "execute")
        get_client = self._as_before(worker, "_get_client")
        extract = TraceContextTextMapPropagator().extract

        @lru_cache(maxsize=100)  # all tasks of a computation come with the same
        def span_of(parent: str, state: str | None) -> Any:
            headers = {ANNOTATION: parent} | ({} if state is None else {STATE: state})
            return get_current_span(extract(headers))

        def activate(key: Any) -> None:
            task = worker.state.tasks.get(key)
            if task is None:
                return
            found = self._contexts.get(task)
            if found is None:
                own = task.annotations or {}
                parent, state = own.get(ANNOTATION), own.get(STATE)
            else:
                parent, state = found.get(CARRIED), found.get(CARRIED_STATE)
            if isinstance(parent, str):
                # What else is in the context that the program runs in, as baggage, stays there. For
                # good: Dask runs this as an asyncio task with variables of its own, which the
                # thread of the user's function gets a copy of.
                span = span_of(parent, state if isinstance(state, str) else None)
                attach(set_span_in_context(span))

        @wraps(Worker.execute)  # Dask names it where it logs of a task
        async def execute_in_context(key: Any, **arguments: Any) -> Any:
            if self._active:
                with contained:
                    activate(key)
            return await execute()(key, **arguments)

        def client_with_context(*args: Any, **kwargs: Any) -> Client:
            client: Client = get_client()(*args, **kwargs)
            if self._active:
                with contained:
                    send_context_with_graphs(client, get_current_span)
            return client

        self._put(worker, "execute", execute_in_context)
        self._put(worker, "_get_client", client_with_context)

    def teardown(self, worker: Worker) -> None:
        """Put the methods back."""
        self._active = False
        for name, (original, ours) in self._wrapped.items():
            # Someone may have wrapped it after us: then ours stays, harmless, inside theirs.
            if vars(worker).get(name) is ours:
                if original is None:
                    delattr(worker, name)
                else:
                    setattr(worker, name, original)

    def _put(self, worker: Worker, name: str, ours: Any) -> None:
        self._wrapped[name] = vars(worker).get(name), ours
        setattr(worker, name, ours)

    def _as_before(self, worker: Worker, name: str) -> Callable[[], Any]:
        """Return what returns the method that is about to be wrapped."""
        before = vars(worker).get(name)
        return lambda: before or method_of_class(worker, name)

    def _take_off_messages(self, worker: Worker) -> None:
        """Take the contexts out of the messages that bring tasks, and remember them.

        For as long as the worker lives: a scheduler may still send some as the plugin goes.
        """
        handlers = worker.stream_handlers
        original = handlers["compute-task"]
        known = getattr(original, "of_daskscope", None)
        if known is not None:  # of the plugin before this one
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
