"""Sends plugins to workers, as source text.

Pickled by reference, they would need daskscope on the workers. Pickled by value by cloudpickle, a
worker with another version of Python could not load them, and would not even start.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

from distributed.core import Status
from distributed.scheduler import Scheduler

from daskscope import containment
from daskscope.containment import Contained

# All texts run in one module there, so imports from daskscope are removed.
_OURS = "from daskscope."


def texts_of(*modules: ModuleType) -> tuple[str, ...]:
    """Return the texts of the module ``containment`` and of ``modules``, in that order.

    Call it when the caller's module is imported: it reads files, which takes too long for an event
    loop. Without source files, because daskscope is installed as byte code only, it returns none.
    """
    try:
        texts = tuple(map(inspect.getsource, (containment, *modules)))
    except OSError:
        return ()
    return tuple(map(_without_ours, texts))


def sent(texts: tuple[str, ...], name: str, **arguments: Any) -> bytes:
    """Return a pickle that runs ``texts`` and calls ``name`` with ``arguments``.

    Raises
    ------
    ValueError
        There are no texts.
    """
    if not texts:
        raise ValueError("there is no text of daskscope's code")
    return pickle.dumps(_Sent(texts, name, arguments))


def put_on_workers(
    scheduler: Scheduler,
    name: str,
    make: Callable[[], bytes],
    contained: Contained,
    ready: Callable[[], None] = lambda: None,
) -> Callable[[], None]:
    """Give all workers, and new ones, the plugin that ``make`` returns. Return what ends it.

    Neither waits: the workers get the plugin in the background. ``ready`` is called on the event
    loop once they have it. Errors of both functions are contained.
    """

    async def board() -> None:
        with contained:
            plugin = make()
            # A worker may leave meanwhile. All other workers, and new ones, get the plugin all the
            # same.
            with Contained():
                await scheduler.register_worker_plugin(None, plugin, name, idempotent=False)
            ready()

    async def leave() -> None:
        with Contained():  # workers may leave meanwhile
            await scheduler.unregister_worker_plugin(None, name)

    def end() -> None:
        if scheduler.status is Status.running:
            scheduler.loop.add_callback(leave)

    scheduler.loop.add_callback(board)
    return end


class _Sent:
    def __init__(self, texts: tuple[str, ...], name: str, arguments: dict[str, Any]) -> None:
        self._names = {
            "texts": texts,
            "module": {"__name__": "daskscope_sent"},
            "name": name,
            "arguments": arguments,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        make = "[exec(text, module) for text in texts] and module[name](**arguments)"
        return eval, (make, self._names)


def _without_ours(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(_OURS))
