"""Derives an exception's ``str()`` from its ``repr``.

A worker reports the ``repr`` of an exception, ``ValueError('no such file')``, but OpenTelemetry's
attribute ``exception.message`` is its ``str()``, ``no such file``. The scheduler does not unpickle
the exception, so this module parses the ``repr``.
"""

from __future__ import annotations

import ast
import builtins
import re

_CALL = re.compile(r"[A-Za-z_][\w.]*\((?P<arguments>.*)\)", re.DOTALL)
_BUILTINS = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}


def text_of(message: str, kind: str) -> str:
    """Return the ``str()`` of an exception of type ``kind`` whose ``repr`` is ``message``.

    If the ``repr`` is not a call with literal arguments, or was cut, return the ``repr``.
    """
    match = _CALL.fullmatch(message)
    if match is None or not message.startswith(f"{kind}("):
        return message
    try:
        made_of = ast.literal_eval(f"({match['arguments']},)" if match["arguments"] else "()")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return message
    if not made_of:
        return ""
    of_python = _BUILTINS.get(kind)
    if len(made_of) == 1:
        return repr(made_of[0]) if of_python is KeyError else str(made_of[0])
    if of_python is not None and issubclass(of_python, OSError) and len(made_of) in (2, 3, 5):
        files = " -> ".join(map(repr, made_of[2::2]))
        return f"[Errno {made_of[0]}] {made_of[1]}" + (f": {files}" if files else "")
    if of_python is not None and of_python.__str__ is BaseException.__str__:
        return str(made_of)
    return message
