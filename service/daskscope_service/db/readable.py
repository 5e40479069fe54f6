"""What functions read that take a row as a dictionary or as a value: columns by their names."""

from __future__ import annotations

from typing import Any, Protocol

# Commands import this without the packages that the service needs.

Item = dict[str, Any]


class Readable(Protocol):
    """A row of either kind, read by the names of its columns."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the value of one column."""
