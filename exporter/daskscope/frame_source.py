"""Returns the source of a function on the stack, with nothing but the standard library.

It reads files, archives, notebook cells, and texts that Python runs.
"""

from __future__ import annotations

import inspect
import linecache
import os
import stat
import sys
import tokenize
import zipimport
from types import FrameType, ModuleType

from distributed.client import SourceCode

#: The longest file that is read, in bytes: nobody writes a longer one by hand.
MAX_FILE = 8 << 20
#: The file names of code that IPython's magics %time and %timeit run.
_TIMED = ("<timed exec>", "<timed eval>", "<magic-timeit>")
#: The file name of all code that is compiled from a string. Since Python 3.13 linecache has the
#: code of ``python -c`` under this name, which is wrong for any other string.
_OF_A_TEXT = "<string>"
#: The functions of profilers that run such a string for IPython's magics (%prun, %lprun and %mprun;
#: %memit), and the argument that it is.
_RUN_A_TEXT = {"runctx": "cmd", "_func_exec": "stmt"}
#: The packages that these functions are of. A user's own may be called so, too.
_PROFILERS = {"cProfile", "profile", "profiling", "line_profiler", "memory_profiler"}


def module_of(frame: FrameType | None) -> str | None:
    """Return the name of the module that ``frame`` runs in, None if it has none."""
    if frame is None:
        return None
    # A program may run code with a dict subclass as globals, whose methods must not run.
    name = dict.get(frame.f_globals, "__name__")
    return name if type(name) is str else None


def source_of(frame: FrameType) -> SourceCode | None:
    """Return the source of the function that ``frame`` runs, in Dask's form; None if unknown.

    At module level it is the source of the whole file.
    """
    code = frame.f_code
    line = frame.f_lineno or code.co_firstlineno
    try:
        lines = lines_of(frame)
        # %timeit wraps the code in a function of its own.
        if code.co_name != "<module>" and code.co_filename != "<magic-timeit>" and lines:
            lines = inspect.getblock(lines[code.co_firstlineno - 1 :])
    except (OSError, SyntaxError, ValueError, tokenize.TokenError):
        # The file was deleted or edited meanwhile, or is no text.
        return None
    if not lines:
        return None
    return SourceCode(
        code=_sendable("".join(lines)),
        lineno_frame=line,
        lineno_relative=line - code.co_firstlineno,
        filename=_sendable(code.co_filename),
    )


def lines_of(frame: FrameType) -> list[str]:
    """Return the lines of the file, or notebook cell, that ``frame`` runs."""
    file = frame.f_code.co_filename
    kept = linecache.cache.get(file)
    if file == _OF_A_TEXT:
        # Strings that the text of ``python -c`` runs have more lines than it, as pytest-xdist's.
        text = _profiled(frame) or (linecache.getlines(file) if _is_of_main(frame) else [])
        return text if (frame.f_lineno or 0) <= len(text) else []
    if kept is not None and len(kept) == 4 and kept[1] is None:
        return list(kept[2])  # No file, but a notebook's cell.
    if file.startswith("<") and file.endswith(">"):
        # No file, but linecache knows the code that doctest runs.
        return linecache.getlines(file) or _cell(file)
    try:
        status = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return _zipped(frame)
    # Reading a pipe would take data from the program, and might never end.
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
        return []
    with tokenize.open(file) as opened:
        lines = opened.readlines()
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _profiled(frame: FrameType) -> list[str]:
    """Return the lines of the string that ``frame`` runs for a profiler, else none."""
    caller = frame.f_back
    while caller is not None and caller.f_code.co_filename == _OF_A_TEXT:
        caller = caller.f_back  # a function of the string was called by the string
    if caller is None or (module_of(caller) or "").partition(".")[0] not in _PROFILERS:
        return []
    text = caller.f_locals.get(_RUN_A_TEXT.get(caller.f_code.co_name, ""))
    if type(text) is not str or len(text) > MAX_FILE:
        return []
    return text.splitlines(keepends=True)


def _is_of_main(frame: FrameType) -> bool:
    main = sys.modules.get("__main__")
    return type(main) is ModuleType and main.__dict__ is frame.f_globals


def _zipped(frame: FrameType) -> list[str]:
    loader, name = dict.get(frame.f_globals, "__loader__"), module_of(frame)
    if type(loader) is not zipimport.zipimporter or name is None:
        return []
    return (loader.get_source(name) or "").splitlines(keepends=True)


def _cell(file: str) -> list[str]:
    """Return the lines of the cell that IPython runs, if any, in the line numbering of ``file``."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return []
    lines = str(shell.history_manager._i00).splitlines(keepends=True)
    if file not in _TIMED or not lines:
        return lines
    if lines[0].startswith("%%"):
        return lines[1:]  # the timed code begins after the magic
    timed = [line for line in lines if "%time" in line]
    return timed if len(timed) == 1 else []  # if there are two, it is not known which one runs


def _sendable(text: str) -> str:
    # A lone surrogate, as in an undecodable file name, could not be sent.
    return text.encode(errors="replace").decode()


def around(source: SourceCode, lines: int) -> SourceCode:
    """Return Dask's ``source`` of a frame, cut to ``lines`` lines before and after its call."""
    # Not splitlines(): a form feed does not end a line of Python.
    text = source.code.removesuffix("\n").split("\n")
    called = min(max(source.lineno_relative, 0), len(text) - 1)
    first = max(called - lines, 0)
    kept = "".join(f"{line}\n" for line in text[first : called + lines + 1])
    return source._replace(code=kept, lineno_relative=called - first)
