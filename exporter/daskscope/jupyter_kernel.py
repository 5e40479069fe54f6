"""Calls a function before an IPython kernel ends that has a cluster in its process.

ipykernel ends its children before itself; Dask's nannies start the workers again, so that it never
comes to its end and is killed: nothing that is registered with :mod:`atexit` is called.

Signals are left alone. A handler in Python runs only once the main thread is back from what it does
in C, so that a program which a signal ends at once, by default, would go on for as long as that
takes.
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
    """Have ``call`` called when this process's kernel is asked to shut down, or to restart, in
    whichever thread that is. Return what takes that back. What it raises is counted in ``drops``.

    Where there is no kernel nothing is done.
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
        # Another may have put itself in front; then it stays, and does nothing.
        if not _waiting and isinstance(ours, _Shutdown):
            kernel.do_shutdown = ours.original

    return take_back


class _Shutdown:
    """Stands in for a kernel's ``do_shutdown``: does just what that does, but a little later."""

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
    # One that is embedded into a program ends, and the program goes on.
    embedded = sys.modules.get("__main__") is not getattr(shell, "user_module", None)
    return None if embedded or not hasattr(kernel, "do_shutdown") else kernel
