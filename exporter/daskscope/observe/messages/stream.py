"""Gives plugin hooks access to the message that the scheduler is handling.

Hooks do not get the size of a graph, the code that sent it, or the exception of a task that Dask
runs again. These are in the messages of clients and workers. So this module wraps the handler of a
kind of message, and stores what it reads from the message while the handler runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar

from distributed.scheduler import Scheduler

from daskscope.containment import guarded

Value = TypeVar("Value")


class Messages(Generic[Value]):
    """Reads one kind of message until :meth:`stop`.

    ``read`` returns a value for each message. It must be small, because everything that the handler
    starts may keep it alive. ``pass_on`` returns the message to pass to the handler.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        kind: str,
        read: Callable[[Mapping[str, Any]], Value],
        drops: Counter[str],
        *,
        pass_on: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._pass_on = pass_on
        self._handlers = scheduler.stream_handlers
        self._kind = kind
        self._read = read
        self._drops = drops
        self._current: ContextVar[Value | None] = ContextVar(f"daskscope {kind}", default=None)
        self._original = self._handlers.get(kind)
        if self._original is not None:
            self._ours = self._handlers[kind] = self._around(self._original)

    def current(self) -> Value | None:
        """Return the value of the message that is being handled; None if there is no message."""
        return self._current.get()

    def stop(self) -> None:
        """Stop reading messages."""
        self._read = lambda message: None  # type: ignore[assignment, return-value]
        # If other code has wrapped the handler since, ours stays inside it and reads nothing.
        if self._original is not None and self._handlers.get(self._kind) is self._ours:
            self._handlers[self._kind] = self._original

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # Dask awaits a handler only if it is a coroutine function, so ours must be one, too.
        if iscoroutinefunction(original):

            @wraps(original)
            async def asynchronous(*args: Any, **message: Any) -> Any:
                token = self._current.set(self._value(message))
                try:
                    return await original(*args, **self._passed_on(message))
                finally:
                    self._current.reset(token)

            return asynchronous

        @wraps(original)
        def synchronous(*args: Any, **message: Any) -> Any:
            token = self._current.set(self._value(message))
            try:
                return original(*args, **self._passed_on(message))
            finally:
                self._current.reset(token)

        return synchronous

    def _value(self, message: Mapping[str, Any]) -> Value | None:
        return guarded(self._drops, None, self._read, message)

    def _passed_on(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._pass_on is None:
            return message
        return guarded(self._drops, message, self._pass_on, message)
