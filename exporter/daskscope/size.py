"""How large values are, for what is bounded in bytes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def size_of(value: Any) -> int:
    """Return about how many bytes texts, containers and dataclasses of them take in memory.

    As JSON they take somewhat less.
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
