"""Lone surrogates: what Python makes of a file's name, or a user's, that is no UTF-8.

Neither JSON nor OTLP can hold one, and the text that it is in may be any: what a function or a file
is called, a worker, the cluster. One is replaced where all that leaves goes through.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar, cast

Value = TypeVar("Value")

_PLAIN = frozenset({int, float, bool, type(None)})


def without_surrogates(value: Value) -> Value:
    """Return ``value``, a text or a container or dataclass of texts, with ``?`` for each.

    It is mostly the same object: nothing is copied of what has none.
    """
    return value if _is_free(value) else cast(Value, _replaced(value))


def _is_free(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is str:
        return value.isascii() or _is_utf8(value)
    if kind is dict:
        return all(map(_is_free, value)) and all(map(_is_free, value.values()))
    if isinstance(value, tuple):
        return all(map(_is_free, value))
    return all(_is_free(getattr(value, name)) for name in _fields(cast(Hashable, kind)))


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


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    if isinstance(value, tuple):
        items = map(_replaced, value)
        return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
    names = _fields(cast(Hashable, type(value)))
    if not names:
        return value
    return dataclasses.replace(value, **{name: _replaced(getattr(value, name)) for name in names})
