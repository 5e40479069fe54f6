"""Estimates the size of values, for bounds in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

from daskscope.containment import contain

#: The most values that :func:`estimate` looks at.
MAX_LOOKS = 100


def size_of(value: Any) -> int:
    """Return about how many bytes texts, containers and dataclasses of them take in memory.

    Their JSON is somewhat smaller.
    """
    if isinstance(value, str):
        return 50 + len(value)
    if isinstance(value, tuple | list):
        return 50 + sum(map(size_of, value))
    if isinstance(value, dict):
        return 100 + sum(size_of(key) + size_of(item) for key, item in value.items())
    if is_dataclass(value):
        return 100 + sum(size_of(getattr(value, field.name)) for field in fields(value))
    return 30


def estimate(value: Any) -> int:
    """Return quickly about how many bytes any ``value`` takes in memory.

    Of many parts it looks at some, and assumes that the others are like them. Objects of other
    types are assumed to be small.
    """
    try:
        return _estimate(value, MAX_LOOKS)
    except Exception as error:
        contain(error)  # a user's own mapping type may do anything
        return 100


def _estimate(value: Any, looks: int) -> int:
    if isinstance(value, str | bytes | bytearray):
        return 50 + len(value)
    if isinstance(value, memoryview):
        return 50 + value.nbytes
    items: Any
    if isinstance(value, dict):
        items, width = dict.items(value), 2  # not by a user's own method
    elif isinstance(value, Mapping):
        items, width = value.items(), 2
    elif isinstance(value, list | tuple | AbstractSet):
        items, width = value, 1
    else:
        return 100
    count = len(items)
    looked = list(islice(items, max(looks // width, 1)))
    if not looked or looks < 1:
        return 100 + 50 * width * count
    share = looks // (width * len(looked)) - 1
    size = 0
    for item in looked:
        for part in item if width == 2 else (item,):
            size += _estimate(part, share)
    return 100 + 10 * count + size * count // len(looked)
