"""Guards daskscope's code in Dask's and users' threads: errors are counted and not passed on.

This file is also sent to workers, as text, before the code that runs there. So it uses only the
standard library.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial, wraps
from types import CodeType, TracebackType
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Item = TypeVar("Item")
Result = TypeVar("Result")
Other = TypeVar("Other")

#: The name under which a contained error is counted.
INTERNAL_ERROR = "internal error"


class Contained:
    """Contains errors of daskscope's own code, and counts each in ``drops`` as an internal error.

    As a context manager, on an event loop or in a thread of ours::

        with self._contained:
            self._failures.add(...)

    As a wrapper of a function that user code calls, and that returns ``otherwise`` on an error::

        hook = contained.around(hook, otherwise=())

    Nothing is logged. These are passed on: exceptions that are no :class:`Exception`, such as
    ``KeyboardInterrupt``, ``SystemExit`` and a cancellation, and exceptions of the user's own
    signal handlers, such as a timeout. One instance serves all threads, and is reentrant.

    Without ``drops`` nothing is counted: for expected errors of other code.
    """

    __slots__ = ("_drops",)

    def __init__(self, drops: MutableMapping[str, int] | None = None) -> None:
        self._drops = drops

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Count and suppress an error."""
        return isinstance(error, Exception) and _counted(error, self._drops)

    def around(
        self, function: Callable[Parameters, Result], *, otherwise: Other
    ) -> Callable[Parameters, Result | Other]:
        """Return a wrapper of ``function`` that returns ``otherwise`` if ``function`` fails.

        It is safe at any stack depth: it takes one more frame, and handles an error without
        another.
        """

        @wraps(function)
        def contained(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result | Other:
            # No with-statement, which would fail before the call if no frame is left.
            try:
                return function(*args, **kwargs)
            except Exception as error:
                try:
                    if not _counted(error, self._drops):
                        raise
                except RecursionError:
                    pass  # No frame is left to count it.
                return otherwise

        return contained


def contain(error: Exception, drops: MutableMapping[str, int] | None = None) -> None:
    """Contain an ``error`` that an ``except`` clause has caught, and count it in ``drops``.

    For code that runs too often for a :class:`Contained`, or that handles errors itself. An error
    that must be passed on is raised again.
    """
    if not _counted(error, drops):
        raise error


def guarded(
    drops: MutableMapping[str, int],
    otherwise: Other,
    call: Callable[..., Result],
    *arguments: object,
    **options: object,
) -> Result | Other:
    """Return what ``call`` returns or, if it fails, ``otherwise``, and count that in ``drops``.

    For a part of something else, such as a task's name: an error costs only that part.
    """
    try:
        return call(*arguments, **options)
    except Exception as error:
        contain(error, drops)
        return otherwise


def each_guarded(
    drops: MutableMapping[str, int], call: Callable[[Item], Result], items: Iterable[Item]
) -> tuple[Result, ...]:
    """Return what ``call`` returns for each of ``items``, without those for which it fails.

    For rows: an error costs only its own row, and is counted in ``drops``.
    """
    results = []
    for item in items:
        try:
            results.append(call(item))
        except Exception as error:
            contain(error, drops)
    return tuple(results)


def _counted(error: Exception, drops: MutableMapping[str, int] | None) -> bool:
    """Count ``error`` and return True; return False, without counting, if it must be passed on."""
    # Without stack or memory left, the check is impossible.
    if not isinstance(error, (RecursionError, MemoryError)) and _is_of_signal_handler(error):
        return False
    if drops is not None:
        # Not ``+=``, for which a Counter needs another frame if the key is missing.
        drops[INTERNAL_ERROR] = drops.get(INTERNAL_ERROR, 0) + 1
    return True


def _is_of_signal_handler(error: Exception) -> bool:
    """Return whether a signal handler of this process has raised ``error``.

    Python runs signal handlers between any two steps of the main thread, also inside our code.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = set(_codes_of_signal_handlers())
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _codes_of_signal_handlers() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        for function in (handler, vars(type(handler)).get("__call__")):
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if isinstance(code, CodeType):
                yield code
