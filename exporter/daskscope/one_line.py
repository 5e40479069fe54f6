"""Puts text of users and programs on one line, for logs, tables and messages."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return ``text`` on one line, without characters that control a terminal.

    Line ends, control characters and direction marks become spaces, and several spaces become one.
    """
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())
