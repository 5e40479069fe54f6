"""The worker's side of trace context: inside a task the context is active that it came with.

This file is also sent to the workers, as text, and run there (:func:`carried`): they may lack
daskscope, and have another Python than the scheduler. So it needs nothing of ours, and
OpenTelemetry only where it is.
"""

from __future__ import annotations

import inspect
import pickle
import sys
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import Any

from dask.base import annotate
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker

#: The annotations that carry a trace context, as in ``daskscope.observe.trace_context``.
ANNOTATION = "traceparent"
STATE = "tracestate"


class TaskContext(WorkerPlugin):
    """Makes OpenTelemetry's context of a task's caller the current one while the task runs.

    A task that was sent without a context runs without one. What a task submits by itself carries
    the task's own context on.
    """

    def setup(self, worker: Worker) -> None:
        """Wrap the method that runs a task, unless the worker has no OpenTelemetry."""
        try:
            from opentelemetry.context import attach, detach
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            return
        self._active = True
        self._original = original = worker.execute
        extract = TraceContextTextMapPropagator().extract

        @lru_cache(maxsize=100)  # all tasks of a computation come with the same
        def variables_of(parent: str, state: str | None) -> list[tuple[ContextVar[Any], Any]]:
            """Return the variables that are set where that context is active, and their values."""
            headers = {ANNOTATION: parent} | ({} if state is None else {STATE: state})
            outside = copy_context()
            token = attach(extract(headers))
            try:
                with annotate(**headers):
                    inside = copy_context()
            finally:
                detach(token)
            return [found for found in inside.items() if outside.get(found[0]) is not found[1]]

        async def execute(key: Any, **arguments: Any) -> Any:
            task = worker.state.tasks.get(key) if self._active else None
            found = (task and task.annotations) or {}
            parent, state = found.get(ANNOTATION), found.get(STATE)
            if isinstance(parent, str):
                # For good: Dask runs this as an asyncio task with variables of its own, which the
                # thread of the user's function gets a copy of.
                for variable, value in variables_of(
                    parent, state if isinstance(state, str) else None
                ):
                    variable.set(value)
            return await original(key, **arguments)

        self._execute = execute
        worker.execute = execute  # type: ignore[method-assign]

    def teardown(self, worker: Worker) -> None:
        """Put the method back."""
        self._active = False
        # Someone may have wrapped it after us: then ours stays, harmless, inside theirs.
        if vars(worker).get("execute") is getattr(self, "_execute", worker):
            if getattr(self._original, "__self__", None) is worker:
                del worker.execute
            else:
                worker.execute = self._original  # type: ignore[method-assign]


#: Read while the module is imported: not on an event loop.
_TEXT = inspect.getsource(sys.modules[__name__]) if __name__ in sys.modules else ""


def carried() -> bytes:
    """Return a :class:`TaskContext` as Dask sends plugins, but as the text of its code.

    As in ``daskscope.worker_logs``: by value, a worker with another Python could not load it.
    """
    return pickle.dumps(_Carried(_TEXT))


class _Carried:
    def __init__(self, text: str) -> None:
        self._names = {"text": text, "module": {"__name__": "daskscope_task_context"}}

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("exec(text, module) or module['TaskContext']()", self._names)
