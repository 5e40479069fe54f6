"""Plugins for workers, sent as the text of their code.

By reference they would need daskscope on the workers. By value, as cloudpickle does it, a worker
with another Python could not load them, and would not even start.
"""

from __future__ import annotations

import inspect
import pickle
from types import ModuleType
from typing import Any

from daskscope import containment

# What is sent along stands in the same module there: there is nothing of ours to import.
_OURS = "from daskscope."


def texts_of(*modules: ModuleType) -> tuple[str, ...]:
    """Return what is to be sent of ``modules``, in that order, after the guard.

    To be called while the caller is imported: files are read, which takes too long for an event
    loop. None are there where daskscope is byte code alone.
    """
    try:
        texts = tuple(map(inspect.getsource, (containment, *modules)))
    except OSError:
        return ()
    return tuple(map(_without_ours, texts))


def sent(texts: tuple[str, ...], name: str, **arguments: Any) -> bytes:
    """Return, as Dask sends plugins, what ``name`` makes of ``arguments`` where ``texts`` were run.

    Raises
    ------
    ValueError
        There are no texts.
    """
    if not texts:
        raise ValueError("there is no text of daskscope's code")
    return pickle.dumps(_Sent(texts, name, arguments))


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
