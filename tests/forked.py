"""Runs commands and programs in forked copies of processes that have imported much.

To start a service takes 1.4 to 2.1 s of a core, most of it imports; a copy takes 0.3 s, and from
the first line of :func:`daskscope_service.cli.main.main` on it is the same, but for passwords'
hashes: also what is imported only where it is needed is there already. ``dask scheduler``,
``dask worker`` and programs in Python find Dask and OpenTelemetry imported, and import daskscope
themselves. There is one such process of either kind for each that runs tests, and it ends with
that.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, NoReturn, TextIO

from tests.patience import stretched

#: What is run: the command of that name, or, as ``python`` does it, a file, ``-m`` or ``-c``.
Program = Literal["daskscope", "dask", "python"]

_MOST_BYTES = 1 << 17

#: Held from a request to its answer.
_asking = threading.Lock()


class ForkedProcess:
    """A command under way, as :class:`subprocess.Popen` has it: of the same names."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        files: tuple[int, int, int] | None = None,
        program: Program = "daskscope",
        folder: Path | None = None,
    ) -> None:
        """Start it in ``folder``, by default this one: with ``files`` as its input, output and
        errors, by default with no input, and with output and errors in ``stdout``.
        """
        self._ended, its_end = os.pipe()
        request = json.dumps(
            {
                "program": program,
                "arguments": [*arguments],
                "environment": dict(environment),
                "folder": str(folder or Path.cwd()),
            }
        )
        with contextlib.ExitStack() as ours:
            ours.callback(os.close, its_end)
            if files is None:
                output, its_output = os.pipe()
                ours.callback(os.close, its_output)
                self.stdout: TextIO = os.fdopen(output, encoding="utf-8")
                nothing = os.open(os.devnull, os.O_RDONLY)
                ours.callback(os.close, nothing)
                files = (nothing, its_output, its_output)
            with _asking:
                to_server = _server("dask" if program == "python" else program)
                socket.send_fds(to_server, [request.encode()], [*files, its_end])
                self.pid = int(to_server.recv(32))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return its exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("daskscope", timeout)
            self.returncode = int(os.read(self._ended, 32))
            os.close(self._ended)
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, None]:
        """Return what it wrote, once it has ended. Raises subprocess.TimeoutExpired."""
        ends = time.monotonic() + timeout
        parts = []
        while select.select([self.stdout], [], [], max(ends - time.monotonic(), 0))[0]:
            part = os.read(self.stdout.fileno(), _MOST_BYTES)
            if not part:
                break
            parts.append(part)
        self.wait(max(ends - time.monotonic(), 0))
        return b"".join(parts).decode(), None

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        # It may have ended a moment ago.
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it runs."""
        self.send_signal(signal.SIGKILL)


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    input: str = "",
    timeout: float = 60,
    program: Program = "daskscope",
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as :func:`subprocess.run` does.

    Raises subprocess.TimeoutExpired, once the command is killed.
    """
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
        given, output, errors = files
        given.write(input)
        given.seek(0)
        numbers = given.fileno(), output.fileno(), errors.fileno()
        process = ForkedProcess(arguments, environment, numbers, program, folder)
        try:
            code = process.wait(stretched(timeout))
        finally:
            process.kill()
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess([*arguments], code, output.read(), errors.read())


@functools.cache
def _server(program: Program) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DASKSCOPE_")}
    environment["PYTHONUNBUFFERED"] = "1"
    command = [sys.executable, "-m", "tests.forked", program]
    subprocess.Popen(command, stdin=theirs.fileno(), env=environment)
    theirs.close()
    return ours


def _import(program: Program) -> None:
    if program == "dask":
        import distributed.http.scheduler.info  # noqa: F401
        import opentelemetry.exporter.otlp.proto.http._log_exporter
        import opentelemetry.exporter.otlp.proto.http.metric_exporter
        import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: F401
        import requests  # noqa: F401
    else:
        import alembic.command  # noqa: F401
        import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401

        import daskscope_service.application
        import daskscope_service.cli.main
        import daskscope_service.export.files
        import daskscope_service.server.front
        import daskscope_service.server.process  # noqa: F401

        with contextlib.suppress(ImportError):  # it is not there with the oldest dependencies
            import psycopg  # noqa: F401
        from tests import light_passwords

        light_passwords.use()


def _serve(program: Program) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request. Return it in the copy, and None once nobody asks any more."""
    _import(program)
    # A collection of a copy would touch, and so copy, the memory of all that is imported.
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=os.dup(0))
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in readable:
            os.read(woken, _MOST_BYTES)
            for process, end in list(running.items()):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    del running[process]
                    # Nobody may be there to read it.
                    with contextlib.suppress(BrokenPipeError):
                        os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(end)
        if requests.fileno() not in readable:
            continue
        request, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
        if not request:
            return None
        copy = os.fork()
        if copy == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (requests.detach(), woken, waker, files[-1], *running.values()):
                os.close(one)
            return json.loads(request), files[:3]
        for one in files[:3]:
            os.close(one)
        running[copy] = files[-1]
        requests.send(str(copy).encode())


def _become(request: dict[str, Any], files: Sequence[int]) -> None:
    program: Program = request["program"]
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv[:] = [program, *request["arguments"]]
    if program == "daskscope":
        _run_daskscope()
        return
    import dask

    # It was read as Dask was imported.
    dask.config.paths[:] = dask.config._get_paths()
    dask.config.refresh()
    if program == "dask":
        # As ``dask scheduler`` and ``dask worker`` do it.
        module = f"distributed.cli.dask_{sys.argv.pop(1)}"
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        _run_python()


def _run_daskscope() -> None:
    from daskscope_service.cli.main import main
    from tests import quick_rounds

    if quick_rounds.VARIABLE in os.environ:
        quick_rounds.use()
    try:
        main()
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        _end(error.code or 0)


def _end(code: int) -> NoReturn:
    """End this copy as an interpreter ends, but for taking all apart that is imported: that would
    copy its memory, and take a tenth of a second.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _run_python() -> None:
    """Run what the arguments name. It stays ``__main__`` to the end, which :mod:`runpy` ends
    before: what it holds is still there as the interpreter ends.
    """
    del sys.argv[0]
    main = types.ModuleType("__main__")
    if sys.argv[0] == "-m":
        sys.path[0] = os.getcwd()
        name = sys.argv.pop(1)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        assert spec is not None
        assert spec.origin is not None
        main.__spec__ = spec
        sys.argv[0] = main.__file__ = spec.origin
        code = compile(Path(spec.origin).read_bytes(), spec.origin, "exec")
    elif sys.argv[0] == "-c":
        sys.path[0] = ""
        code = compile(sys.argv.pop(1), "<string>", "exec")
    else:
        main.__file__ = sys.argv[0]
        sys.path[0] = str(Path(main.__file__).resolve().parent)
        code = compile(Path(main.__file__).read_bytes(), main.__file__, "exec")
    # Whose first folder was that of these tests, whatever it names.
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


if __name__ == "__main__":
    found = _serve("dask" if sys.argv[1] == "dask" else "daskscope")
    if found is not None:
        _become(*found)
