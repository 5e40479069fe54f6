"""The one guard around what daskscope does in other people's threads: it counts what fails, and
whoever is observed goes on as if nobody looked.

This file is also sent to workers, as text, in front of what runs there.
So it needs nothing but the standard library.
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

#: What a contained error is counted as.
INTERNAL_ERROR = "internal error"


class Contained:
    """Contains errors of daskscope's own, and counts each in ``drops`` as an internal error.

    As a context manager around one thing that is noted, on an event loop or in a thread of ours::

        with self._contained:
            self._failures.add(...)

    As a wrapper of a function that the user's code runs through, which then returns ``otherwise``::

        hook = contained.around(hook, otherwise=())

    Nothing is logged. What is no :class:`Exception` goes on its way: ``KeyboardInterrupt``,
    ``SystemExit``, a cancellation. So does what the user's own signal handler raises, a timeout for
    one. One instance serves all threads, and may be entered again inside itself.

    Without ``drops`` nothing is counted: for errors of others, which are to be expected.
    """

    __slots__ = ("_drops",)

    def __init__(self, drops: MutableMapping[str, int] | None = None) -> None:
        self._drops = drops

    def __enter__(self) -> None:
        """Begin to contain."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Count an error, and end it here."""
        return isinstance(error, Exception) and _counted(error, self._drops)

    def around(
        self, function: Callable[Parameters, Result], *, otherwise: Other
    ) -> Callable[Parameters, Result | Other]:
        """Return ``function``, contained, which returns ``otherwise`` where it fails.

        Safe at any depth: it takes one frame of the caller's stack, and no more to fail.
        """

        @wraps(function)
        def contained(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result | Other:
            # No with-statement: where no frame is left, it would fail before it began.
            try:
                return function(*args, **kwargs)
            except Exception as error:
                try:
                    if not _counted(error, self._drops):
                        raise
                except RecursionError:
                    pass  # There was no room to count it.
                return otherwise

        return contained


def contain(error: Exception, drops: MutableMapping[str, int] | None = None) -> None:
    """Contain an ``error`` that an ``except`` clause has caught, and count it in ``drops``.

    For what runs so often that a :class:`Contained` would cost too much, and for what goes another
    way on an error. One that is not ours to contain is raised again.
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
    """Return what ``call`` returns or, where it fails, ``otherwise``, and count it in ``drops``.

    For what is a part of something else, such as a task's name: an error costs that part alone.
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

    For rows: an error costs the row that it is about, and is counted in ``drops``.
    """
    results = []
    for item in items:
        try:
            results.append(call(item))
        except Exception as error:
            contain(error, drops)
    return tuple(results)


def _counted(error: Exception, drops: MutableMapping[str, int] | None) -> bool:
    """Count ``error``. Return False, and do not, if it is not ours to contain."""
    # Where there is neither stack nor memory left, nothing can be found out.
    if not isinstance(error, (RecursionError, MemoryError)) and _is_of_signal_handler(error):
        return False
    if drops is not None:
        # Not ``+=``: a Counter would need another frame for what it has not yet.
        drops[INTERNAL_ERROR] = drops.get(INTERNAL_ERROR, 0) + 1
    return True


def _is_of_signal_handler(error: Exception) -> bool:
    """Return whether one of the handlers of this process for signals has raised ``error``.

    Python runs them between any two steps of the main thread, ours as well.
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
