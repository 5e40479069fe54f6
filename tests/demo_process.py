"""``daskscope demo --json`` in a process group of its own, as a script or a terminal has it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from tests.exporter import counted_preload

#: Seconds that one round of its work takes at most: more than a minute where nothing else runs, and
#: with a browser that looks on, and other tests beside it, some 160 seconds of a core.
ONE_ROUND = 300

#: Seconds that it may take to end; it promises five.
_PATIENCE = 20

_DEMO = "from daskscope_service.cli.main import main; main()"


class DemoProcess:
    """The demo, from its line of JSON on until it is ended. Use it in a with-statement.

    ``url`` and ``token`` are those of its service; ``sign_in_link`` is what it shows a person. What
    its cluster does is counted beside the plugin, with what ``differs`` in a file at its end.
    """

    def __init__(self, *options: str, program: str = _DEMO) -> None:
        """``program``: Python that runs the demo, where a test changes some of it before."""
        self._command = [sys.executable, "-c", program, "demo", "--json", *options]

    def __enter__(self) -> Self:
        # Append: the process shares the place at which this one reads.
        self._shown = tempfile.TemporaryFile("a+", encoding="utf-8")
        self._folder = tempfile.TemporaryDirectory()
        self.differs = Path(self._folder.name, "differs")
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **counted_preload.beside(self.differs)},
            stdout=subprocess.PIPE,
            stderr=self._shown,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.shown()
        ready = json.loads(line)
        self.url: str = ready["url"]
        self.token: str = ready["token"]
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(_PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._shown.close()
        with self._folder:
            if self.differs.exists():
                counted_preload.assert_equal(self.differs)

    @property
    def sign_in_link(self) -> str:
        # With what ends it: the process may have written only a part so far.
        found = re.search(r"Sign in: (http\S+)\s", self.shown())
        assert found is not None, self.shown()
        return found[1]

    def press_ctrl_c(self) -> tuple[int, str]:
        """Interrupt every process of the group, as a terminal does. Return code and errors."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.end()

    def end(self) -> tuple[int, str]:
        """Wait for its end. Return code and errors."""
        return self._process.wait(_PATIENCE), self.shown()

    def alive(self) -> bool:
        """Return whether any process of the group is left."""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def shown(self) -> str:
        """Return what it has shown a person up to now."""
        self._shown.seek(0)
        return self._shown.read()
