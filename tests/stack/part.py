"""One process of the stack: its log in a file, its end by its id."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import requests

from tests.patience import wait_until

_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_LAST_LINES = 20


class DidNotStart(Exception):
    """A part ended, or did not answer, before it was ready; the message has its last log lines."""


class Part:
    """A program that runs until it is stopped, and can be started again.

    ``environment`` is added to this process's own. ``ready`` tells whether it answers.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str],
        ready: Callable[[], bool],
    ) -> None:
        self.name = name
        self.log = log
        self._command = [str(word) for word in command]
        self._environment = dict(environment)
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """The ids of its processes: of the one that there is."""
        return [self.pid]

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and return once it answers. Raises DidNotStart."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=os.environ | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches only who started it, and who ends the parts in order.
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:  # Ctrl-C, too
            self.stop("KILL")
            raise

    def stop(self, how: Literal["TERM", "KILL"] = "TERM") -> None:
        """End it, if it is there. ``KILL`` gives it no warning."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(getattr(signal, f"SIG{how}"))
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self) -> None:
        try:
            wait_until(lambda: self._ready() or not self.runs)
        except AssertionError:
            why = "does not answer"
        else:
            if self.runs:
                return
            why = "ended"
        raise DidNotStart(f"{self.name} {why}; the end of its log:\n{self.last_lines()}")

    def last_words(self) -> str:
        """Return what tells why it ended."""
        return f"the end of its log:\n{self.last_lines()}"

    def last_lines(self, count: int = _LAST_LINES) -> str:
        """Return the end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-count:])


def answers(url: str) -> bool:
    """Return whether a GET of ``url`` succeeds."""
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False
