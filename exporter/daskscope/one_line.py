"""Makes text of users and programs fit for logs, tables, messages and terminals."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return ``text`` on one line, without characters that control a terminal.

    Line ends, control characters and direction marks become spaces, and several spaces become one.
    """
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def printable(text: str) -> str:
    """Return ``text`` without characters that control a terminal, except line ends and tabs.

    Each of them becomes a space.
    """
    return "".join(one if one.isprintable() or one in "\n\t" else " " for one in text)
