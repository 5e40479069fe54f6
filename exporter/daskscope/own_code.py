"""Which files hold the user's own code, and which a library's."""

from __future__ import annotations

import re

# Python's own library lies in lib/python3.x or, on Windows, in Lib. Compiled libraries report
# files that were where they were built.
_LIBRARY = re.compile(
    r"[\\/](site-packages|dist-packages|lib[\\/]python\d[^\\/]*)[\\/]|\\Lib\\"
    r"|^(?![\\/]|[A-Za-z]:).*\.(?:pyx|pxi|pxd)$|^<(?:frozen|__array_function__) "
)


def is_of_library(file: str) -> bool:
    """Return whether a file of this name is a library's: an installed one, or Python's own."""
    return _LIBRARY.search(file) is not None
