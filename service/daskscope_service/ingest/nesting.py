"""How deep JSON is nested, before it is decoded.

The decoder goes a call deeper for each object and array, and where Python 3.13 would end that, a
thread's stack may have ended before, and with it the process.
"""

from __future__ import annotations

import re
from itertools import accumulate

# One without an end, too: it is looked through once, and not from each of its quotation marks.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{[]}"))
_DEPTH_OF = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}


def depth(body: bytes) -> int:
    """Return how deep ``body`` is nested, up to where it is JSON."""
    brackets = _TEXT.sub(b"", body).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_DEPTH_OF.__getitem__, brackets)), default=0)
