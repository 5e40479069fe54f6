"""What a reader sees of a page."""

from __future__ import annotations


def words(page: str) -> str:
    """Return ``page`` with white space as browsers show it: one space, and none between tags."""
    return " ".join(page.split()).replace("> <", "><")
