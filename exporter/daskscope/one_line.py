"""Text of users and programs on one line, for logs, tables and messages."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return ``text`` on one line, with nothing in it that a terminal would obey.

    Line ends, control characters and marks of direction become spaces, and several spaces one.
    """
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())
