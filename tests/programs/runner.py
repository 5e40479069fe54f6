"""Runs programs in forked copies of a process that has imported Dask: that alone takes seconds.

What they compute is counted beside the plugin; what differs is in the file that the request names.

``python -m tests.programs.runner`` reads requests, one JSON object a line, and answers each
with the exit code of its program, in the order in which they end.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

#: Seconds that a program may take, unless its request says how many.
DEADLINE = 100.0

_at_last: list[Callable[[], None]] = []


def main() -> None:
    """Fork for each request; the copy returns from here as its program ends."""
    atexit.register(at_last)  # before Dask's own, which closes what the program left open
    # With what a cluster, and OpenTelemetry, import as they start.
    import distributed.http.scheduler.info
    import distributed.http.scheduler.json
    import distributed.http.scheduler.prometheus
    import distributed.http.worker.prometheus  # noqa: F401
    import opentelemetry.propagators.composite  # noqa: F401
    import pytest  # noqa: F401

    import daskscope.registration  # noqa: F401

    # The collections of a copy would touch, and so copy, the memory of all that is imported.
    gc.collect()
    gc.freeze()
    running: dict[int, tuple[str, float]] = {}
    print("ready", flush=True)
    waiting = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.02)
        if readable:
            read = os.read(0, 1 << 16)
            if not read:
                return
            waiting += read
        while b"\n" in waiting:
            line, waiting = waiting.split(b"\n", 1)
            request = json.loads(line)
            copy = os.fork()
            if copy == 0:
                run(request)
                return
            running[copy] = request["id"], time.monotonic() + request.get("seconds", DEADLINE)
        for process, (name, ends) in list(running.items()):
            if time.monotonic() > ends:
                os.kill(process, signal.SIGKILL)
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del running[process]
                code = os.waitstatus_to_exitcode(status)
                print(json.dumps({"id": name, "code": code}), flush=True)


def at_last() -> None:
    """Do what the copies do after all else."""
    for do in _at_last:
        do()


def run(request: dict[str, Any]) -> None:
    """Become the program."""
    folder = Path(request["folder"])
    os.chdir(folder)
    for number, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, str(folder / "stdout"), os.O_WRONLY | os.O_CREAT),
        (2, str(folder / "stderr"), os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.update(request["environment"])
    if "differs" in request:
        from tests.exporter import counted_preload  # not where there is no plugin

        counted_preload.count()
        _at_last.append(partial(counted_preload.compare, os.getpid(), request["differs"]))
    sys.argv[:] = [request["program"]]
    sys.path[0] = str(folder)
    runpy.run_path(request["program"], run_name="__main__")


if __name__ == "__main__":
    main()
