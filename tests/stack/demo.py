"""``daskscope demo`` as a part of the stack: the service, and a cluster with real work on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any, Self

import psutil  # type: ignore[import-untyped]

from tests.stack.part import DidNotStart

#: Seconds in which it ends its own parts; it promises five.
_STOP_SECONDS = 20.0


class Demo:
    """The demo with further variables; what it tells people goes to ``stream``.

    Use it in a with-statement. ``ready`` is its line of JSON: the service's ``url`` and a
    ``token``. It is for people, so nothing is counted beside it: tests.demo_process does that.
    """

    name = "the demo"

    def __init__(self, environment: Mapping[str, str], stream: IO[str]) -> None:
        self._environment = os.environ | environment
        self._stream = stream
        self._own: list[psutil.Process] = []
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "daskscope_service.cli", "demo", "--json"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stream,
            text=True,
            # Ctrl-C reaches only who started it, and who ends the parts in order.
            start_new_session=True,
        )
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                raise DidNotStart("the demo ended; what it said stands above")
            self.ready = json.loads(line)
            # It ends them itself, unless it is killed.
            self._own = psutil.Process(self.pid).children(recursive=True)
        except BaseException:  # Ctrl-C, too
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The ids of its process and of those that it started."""
        return [self.pid, *(process.pid for process in self._own)]

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process.poll() is None

    def last_words(self) -> str:
        """Return where it is said why it ended."""
        return "what it said stands above"

    def stop(self) -> None:
        """End it, with the service and the cluster."""
        if self.runs:
            self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for process in self._own:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(self._own, _STOP_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
