"""Tries a target out while its owner waits: a few at a time, and of a workspace one."""

from __future__ import annotations

import threading

from daskscope_service.notifications.sending import Sender


class Busy(Exception):
    """Another trial is under way: of this workspace, or as many as may be of others."""


class Trials:
    """Sends test messages by ``sender``. ``most``: how many requests may wait for one at once."""

    def __init__(self, sender: Sender, most: int) -> None:
        self._sender = sender
        self._most = most
        self._lock = threading.Lock()
        self._under_way = set[str]()

    def run(self, workspace: str, address: str, actor: str) -> None:
        """Send a test message in the name of ``actor``.

        Raises
        ------
        Busy
            At once; nothing was sent.
        NotSent
            It was not taken.
        """
        with self._lock:
            if workspace in self._under_way or len(self._under_way) >= self._most:
                raise Busy
            self._under_way.add(workspace)
        try:
            self._sender.send(
                address, f"daskscope, {workspace}: a test", f"{actor} is testing this target."
            )
        finally:
            with self._lock:
                self._under_way.discard(workspace)
