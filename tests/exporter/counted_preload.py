"""Counts beside the plugins of a process of its own: of a ``dask scheduler`` that preloads this, or
of a program whose clusters do, because :func:`beside` is in its environment.

As the process ends, what differs is written to the file that :data:`FILE` names: nothing, if all is
equal. A process that is killed writes no file.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import traceback
from contextlib import ExitStack
from pathlib import Path

from tests.exporter.everywhere import Counted, counted_everywhere

#: The variable of the environment that names the file.
FILE = "DIFFERS_FROM_TRUTH"

_counting = ExitStack()
_counted: list[Counted] = []
_last: list[logging.Handler] = []


def beside(file: Path) -> dict[str, str]:
    """Return the environment of a program whose schedulers preload this."""
    root = str(Path(__file__).parents[2])
    paths = filter(None, (root, os.environ.get("PYTHONPATH")))
    return {
        FILE: str(file),
        "PYTHONPATH": os.pathsep.join(paths),
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": json.dumps([__name__]),
    }


def assert_equal(file: Path) -> None:
    """Assert that the process has compared the rows of a plugin at its end, and they were equal."""
    assert file.exists(), "nothing was counted beside the plugin"
    differs = file.read_text()
    assert not differs, differs


def count() -> None:
    """Count from now on, in this process, until :func:`compare`."""
    if not _counted:
        _counted.append(_counting.enter_context(counted_everywhere()))


def compare(process: int, file: str) -> None:
    """Write to ``file`` what differs, in the process with this number: not in copies of it."""
    if not _counted or os.getpid() != process:
        return
    differs = ""
    try:
        _counting.close()
    except BaseException:
        differs = traceback.format_exc()
    if differs or _counted[0].ended:
        Path(file).write_text(differs)


class Last(logging.Handler):
    """Compares as logging ends: after Dask has closed the clusters that the program left open."""

    def __init__(self, process: int, file: str) -> None:
        super().__init__()
        self._process, self._file = process, file

    def close(self) -> None:
        """Compare."""
        super().close()
        compare(self._process, self._file)


def dask_setup(scheduler: object) -> None:
    """Count from now on."""
    if not _counted:
        count()
        process, file = os.getpid(), os.environ[FILE]
        # Not before the end: who configures logging anew closes all handlers that there are.
        atexit.register(lambda: _last.append(Last(process, file)))
