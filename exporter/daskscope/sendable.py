"""Makes values sendable: texts in UTF-8, and numbers that JSON parsers of any language accept.

Python uses lone surrogates for undecodable bytes in names of files or users. JSON and OTLP cannot
contain them, but they may be in names of functions, workers or clusters. Sums of numbers from
workers and users may have any size. One invalid value would block everything that is sent with it,
so values are corrected here, where all outgoing data passes.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar, cast

from daskscope.protocol import MAX_COUNT

Value = TypeVar("Value")

#: The name under which numbers are counted that were too large, or NaN.
OUT_OF_BOUNDS = "number out of bounds"


def sendable(value: Value, drops: Counter[str]) -> Value:
    """Return ``value``, made of texts, numbers, containers and dataclasses, in a form that can be
    sent: a surrogate becomes ``?``, a number the nearest valid one, NaN becomes 0.

    Parts that can be sent as they are, mostly all of it, are not copied.
    """
    return value if _is_sendable(value) else cast(Value, _mended(value, drops))


def _is_sendable(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return bool(value.isascii()) or _is_utf8(value)
    if kind is float or kind is int:
        return bool(-MAX_COUNT <= value <= MAX_COUNT)  # NaN is not between them
    if value is None or kind is bool:
        return True
    if kind is dict:
        return all(map(_is_sendable, value)) and all(map(_is_sendable, value.values()))
    if isinstance(value, tuple):
        return all(map(_is_sendable, value))
    return all(_is_sendable(getattr(value, name)) for name in _fields(cast(Hashable, kind)))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(maxsize=256)
def _fields(kind: Hashable) -> tuple[str, ...]:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return ()


def _mended(value: Any, drops: Counter[str]) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int | float):
        if _is_sendable(value):
            return value
        drops[OUT_OF_BOUNDS] += 1
        return type(value)(0 if math.isnan(value) else MAX_COUNT if value > 0 else -MAX_COUNT)
    if isinstance(value, dict):
        return {_mended(key, drops): _mended(item, drops) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [_mended(item, drops) for item in value]
        return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
    names = _fields(cast(Hashable, type(value)))
    if not names:
        return value
    return dataclasses.replace(
        value, **{name: _mended(getattr(value, name), drops) for name in names}
    )
