"""Calls a function before an IPython kernel with a cluster in its process ends.

ipykernel ends its child processes before itself. Dask's nannies start the workers again, so the
kernel never ends and is killed, and functions registered with :mod:`atexit` are not called.

No signal handler is used: a Python handler runs only after the main thread returns from C code, so
it would delay the end of a program that a signal ends at once by default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any

from daskscope.containment import Contained

_waiting: dict[object, Callable[[], None]] = {}


def before_kernel_ends(
    call: Callable[[], None], drops: MutableMapping[str, int]
) -> Callable[[], None]:
    """Call ``call`` when this process's kernel is asked to shut down or restart, in any thread.

    Return a function that cancels this. Exceptions of ``call`` are counted in ``drops``. Without a
    kernel nothing is done.
    """
    kernel = _kernel()
    if kernel is None:
        return lambda: None
    key = object()
    _waiting[key] = Contained(drops).around(call, otherwise=None)
    if not isinstance(kernel.do_shutdown, _Shutdown):
        kernel.do_shutdown = _Shutdown(kernel.do_shutdown)

    def take_back() -> None:
        _waiting.pop(key, None)
        ours = kernel.do_shutdown
        # If other code has replaced it since, ours stays and does nothing.
        if not _waiting and isinstance(ours, _Shutdown):
            kernel.do_shutdown = ours.original

    return take_back


class _Shutdown:
    """Replaces a kernel's ``do_shutdown``: runs the waiting calls, then the original."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for call in list(_waiting.values()):
            call()
        return self.original(*args, **kwargs)


def _kernel() -> Any:
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if get_ipython is None else get_ipython()
    kernel = getattr(shell, "kernel", None)
    # If an embedded kernel ends, the program goes on.
    embedded = sys.modules.get("__main__") is not getattr(shell, "user_module", None)
    return None if embedded or not hasattr(kernel, "do_shutdown") else kernel
