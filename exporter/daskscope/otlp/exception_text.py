"""The text of an exception, as ``str()`` shows it, read off its ``repr``.

A worker reports of an exception what ``repr`` makes of it, ``ValueError('no such file')``; the
attribute ``exception.message`` of OpenTelemetry is the text, ``no such file``. The exception itself
is not unpickled on the scheduler, so the text is read where Python's own classes show all of it.
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
    """Return the text of an exception of type ``kind`` whose ``repr`` is ``message``.

    Where that shows something else than what the exception was made of, or was cut, it is the
    text.
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
    if of_python is not None and issubclass(of_python, OSError) and len(made_of) == 2:
        return f"[Errno {made_of[0]}] {made_of[1]}"  # Python leaves the file out of the repr
    if of_python is not None and of_python.__str__ is BaseException.__str__:
        return str(made_of)
    return message
