"""What stands for a value that cannot be decrypted.

It is apart from :mod:`daskscope_service.db.sealing` for programs that need no database.
"""

from __future__ import annotations


class Unreadable(str):
    """Stands for a value that cannot be decrypted: its text says why, to follow "it is"."""

    __slots__ = ()
