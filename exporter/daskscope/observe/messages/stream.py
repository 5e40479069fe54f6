"""The message to the scheduler that is being handled, for the hooks that run meanwhile.

Some things no hook gets: the size of a graph, the code that sent it, the exception of a task
that Dask runs again. They are in the messages of clients and workers. So the handler of a kind of
message is wrapped, and what is read from the message is at hand inside.
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
    """One kind of message, from now on until :meth:`stop`.

    ``read`` makes a value of each, out of what is small in it: the value may live for as long as
    anything that the handler sets going. ``pass_on`` returns the message that the handler gets.
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
        """Return what was read from the message that is being handled; None outside of one."""
        return self._current.get()

    def stop(self) -> None:
        """Read no more."""
        self._read = lambda message: None  # type: ignore[assignment, return-value]
        # Someone may have wrapped the handler after us: then ours stays, harmless, inside theirs.
        if self._original is not None and self._handlers.get(self._kind) is self._ours:
            self._handlers[self._kind] = self._original

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # Dask awaits a handler if its function is a coroutine's, so that ours must be as well.
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
