"""Tells files with users' own code from files of libraries."""

from __future__ import annotations

import re

# Python's standard library is in lib/python3.x or, on Windows, in Lib. Compiled libraries report
# paths of the machine on which they were built.
_LIBRARY = re.compile(
    r"[\\/](site-packages|dist-packages|lib[\\/]python\d[^\\/]*)[\\/]|\\Lib\\"
    r"|^(?![\\/]|[A-Za-z]:).*\.(?:pyx|pxi|pxd)$|^<(?:frozen|__array_function__) "
)


def is_of_library(file: str) -> bool:
    """Return whether ``file`` belongs to an installed library or to Python's standard library."""
    return _LIBRARY.search(file) is not None
