"""An error of ours costs what it was about, and nothing else: neither the host nor what follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

#: What errors of ours are counted as, among what was dropped.
INTERNAL_ERROR = "internal error"


def guarded(
    drops: Counter[str],
    otherwise: Value,
    call: Callable[..., Value],
    *arguments: object,
    **options: object,
) -> Value:
    """Return what ``call`` returns or, where it raises, ``otherwise``; count the error."""
    try:
        return call(*arguments, **options)
    except Exception:
        drops[INTERNAL_ERROR] += 1
        return otherwise
