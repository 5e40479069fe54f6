"""Lets bodies whose decoding is costly be decoded one at a time, workspace by workspace.

A compressed body of a few kilobytes can take seconds to decode, and forty times its bytes of
memory. So such bodies wait before they take anything that others need, such as a place of the
writer. Few bodies of a workspace may wait, and the other workspaces' turn comes after one of them,
not after all. And a workspace never wants more turns than it leaves to others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from daskscope_service.web.problems import Problem

#: How many bodies of a workspace may wait for a turn or have it: each takes a thread.
MOST_OF_ONE = 4

#: From this number of bytes on, a body is costly in any case.
LARGE_BYTES = 1024 * 1024


class DecodingTurns:
    """The turns. May be used from any thread.

    ``most``: how many bodies of a workspace may wait for a turn or have it. ``most_of_all``: how
    many of all workspaces, because they take threads that pages need. Of those, a workspace may
    have as many as are still free.
    """

    def __init__(self, most: int = MOST_OF_ONE, most_of_all: int = 2 * MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_all = most_of_all
        self._lock = threading.Lock()
        self._busy = False
        self._count: dict[str, int] = {}
        self._waiting: dict[str, deque[threading.Event]] = {}

    @contextmanager
    def turn(self, workspace: str) -> Iterator[None]:
        """Wait for a turn of ``workspace``, and hold it inside the block.

        Raises Problem (429), at once, if too many bodies of the workspace or of all want one
        already.
        """
        mine = threading.Event()
        with self._lock:
            count = self._count.get(workspace, 0)
            free = self._most_of_all - sum(self._count.values())
            if count and count >= min(self._most, free):
                raise Problem(
                    429,
                    f"{count} large requests of the workspace {workspace} are already waiting to "
                    "be decoded. Send this one again in a moment, or send smaller requests.",
                    headers={"Retry-After": "1"},
                )
            if free <= 0:
                raise Problem(
                    429,
                    f"{self._most_of_all} large requests are already waiting to be decoded. Send "
                    "this one again in a moment.",
                    headers={"Retry-After": "1"},
                )
            self._count[workspace] = count + 1
            if self._busy:
                self._waiting.setdefault(workspace, deque()).append(mine)
            else:
                self._busy = True
                mine.set()
        mine.wait()
        try:
            yield
        finally:
            with self._lock:
                self._count[workspace] -= 1
                if not self._count[workspace]:
                    del self._count[workspace]
                self._call_next()

    def _call_next(self) -> None:
        following = next(iter(self._waiting), None)
        if following is None:
            self._busy = False
            return
        theirs = self._waiting.pop(following)
        theirs.popleft().set()
        if theirs:
            self._waiting[following] = theirs  # behind those of the other workspaces
