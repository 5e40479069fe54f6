"""The command ``daskscope demo``: starts the service and a cluster, works in rounds, stops both."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import click
import dask.config
import requests
from distributed import Client, LocalCluster

import daskscope
from daskscope.defaults import DEFAULTS
from daskscope_service.accounts import sign_in, tokens
from daskscope_service.db.engine import DEFAULT_WORKSPACE, open_database
from daskscope_service.demo import workload
from daskscope_service.settings import Settings

#: Seconds for the service to start, which includes its imports and creating the database.
START_SECONDS = 60
#: Seconds for the service to end after SIGTERM; then it is killed.
STOP_SECONDS = 3

#: Code that each worker runs. Ctrl-C reaches the whole process group, but the demo must be the one
#: to end its workers.
_IGNORE_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


class Screen:
    """Shows progress line by line, and in a terminal with a progress bar."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._moves = stream.isatty()
        self._label = ""
        self._began = 0.0

    def line(self, text: str = "") -> None:
        """Write a line."""
        click.echo(text, file=self._stream)

    def step(self, label: str, done: float | None) -> None:
        """Begin the step ``label`` if ``done`` is None; else show that part of it (0 to 1)."""
        if done is None:
            self._label, self._began = label, time.monotonic()
            self._write("" if self._moves else "\n")
        elif self._moves:
            filled = round(done * 24)
            self._write(f"  {'━' * filled}{'─' * (24 - filled)} {done:4.0%}")

    def done(self, result: str) -> None:
        """End a step and show its result."""
        took = time.monotonic() - self._began
        start = f"\r  ✓ {self._label}\x1b[K" if self._moves else "    done"
        click.echo(f"{start}: {result} ({took:.1f} s)", file=self._stream)

    def _write(self, rest: str) -> None:
        start = "\r" if self._moves else ""
        click.echo(f"{start}  … {self._label}{rest}", file=self._stream, nl=False)
        self._stream.flush()


def run(*, port: int | None, seconds: float | None, data_dir: Path | None, as_json: bool) -> None:
    """Run the demo for ``seconds``, or until Ctrl-C if that is None.

    ``port`` is the service's port; None picks a free one. ``data_dir`` is the folder of the
    database; None makes one that is removed at the end. ``as_json``: print a line of JSON with the
    address and a token when the demo is ready.
    """
    # By default, Dask ignores the frames of all modules whose names begin with "dask", also of this
    # module. With (\.|$), the patterns match only Dask itself.
    ignored = dask.config.get("distributed.diagnostics.computations.ignore-modules")
    dask.config.set(
        {
            "distributed.diagnostics.computations.ignore-modules": [
                rf"{pattern}(\.|$)" for pattern in [*ignored, "threading"]
            ]
        }
    )
    # With JSON, standard output is for scripts, so progress goes to standard error.
    screen = Screen(sys.stderr if as_json else sys.stdout)
    # After Ctrl-C, Dask and asyncio log errors about what was interrupted. Users need not see them.
    for name in ("distributed", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # SIGINT is set too, because a shell starts background processes with SIGINT ignored.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    with ExitStack() as parts:
        try:
            if data_dir is None:
                data_dir = Path(tempfile.mkdtemp(prefix="daskscope-demo-"))
                parts.callback(shutil.rmtree, data_dir, ignore_errors=True)
            screen.line("daskscope demo: starting the service and a cluster of two workers …")
            settings = Settings(data_dir=data_dir, port=port or _free_port())
            parts.enter_context(_service(settings))
            token, link = _token_and_link(settings)
            client = parts.enter_context(_cluster(settings, token))
            if as_json:
                ready = {"url": settings.url, "token": token, "workspace": DEFAULT_WORKSPACE}
                click.echo(json.dumps(ready))
                sys.stdout.flush()
            screen.line(f"Ready: {settings.url}  Sign in: {link}")
            screen.line("Ctrl-C ends it." if seconds is None else f"Ends after {seconds:g} s.")
            _work_on(client, screen, seconds)
        except KeyboardInterrupt:
            pass
        # From here on, ignore Ctrl-C: otherwise a second one could leave a process behind.
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, signal.SIG_IGN)
        screen.line("\ndaskscope demo: ending …")


def _work_on(client: Client, screen: Screen, seconds: float | None) -> None:
    """Work in another thread, for ``seconds`` or until Ctrl-C interrupts this thread.

    Python raises KeyboardInterrupt in the main thread, and loses it if the thread is in a
    ``__del__``. Dask's futures have a ``__del__``, and the work drops thousands of them. Therefore
    the main thread only waits.
    """
    failure: SimpleQueue[BaseException] = SimpleQueue()
    # A daemon thread, because a call to Dask may never return after the client was closed.
    threading.Thread(target=_work, args=(client, screen, failure), daemon=True).start()
    try:
        error = failure.get(timeout=seconds)
    except Empty:
        return
    raise error


def _work(client: Client, screen: Screen, failure: SimpleQueue[BaseException]) -> None:
    try:
        files = workload.source_files()
        screen.done(f"{workload.nightly_work(screen.step)} runs: Jobs shows what the repair saves")
        for round_number in range(1, sys.maxsize):
            screen.line(f"Round {round_number}")
            rows = workload.dataframe_work(screen.step)
            screen.done(f"{rows:,} rows")
            screen.done(f"the largest singular value is {workload.array_work(screen.step):.1f}")
            parsed, failed = workload.parse_files(client, files, screen.step)
            screen.done(f"{len(parsed):,} parsed, {failed} raised an exception")
            table = workload.join_names(parsed, screen.step)
            top = ", ".join(f"{row.name} in {row.package}" for row in table.itertuples(index=False))
            screen.done(f"most used are {top}")
            client.log_event(workload.TOPIC, {"round": round_number, "parsed": len(parsed)})
            workload.pause(screen.step)
            screen.done("daskscope counts the idle time")
    except BaseException as error:
        failure.put(error)


@contextmanager
def _service(settings: Settings) -> Iterator[None]:
    command = [sys.executable, "-m", "daskscope_service.cli", "serve"]
    command += ["--port", str(settings.port), "--data-dir", str(settings.data_dir)]
    command += ["--migrate", "apply"]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches only the demo, which ends its parts in order.
            start_new_session=True,
        )
        try:
            if not _answers(f"{settings.url}/readyz", process):
                output.seek(0)
                raise click.ClickException(f"the service did not start:\n{output.read()}")
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _answers(url: str, process: subprocess.Popen[Any]) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(url, timeout=5).ok:
                return True
        except requests.ConnectionError:
            time.sleep(0.05)
    return False


def _token_and_link(settings: Settings) -> tuple[str, str]:
    engine = open_database(settings)
    try:
        token = tokens.create(
            engine, workspace=DEFAULT_WORKSPACE, label="demo", scopes=tokens.USUAL
        )
        return token, sign_in.make_link(engine, settings.url, DEFAULT_WORKSPACE)
    finally:
        engine.dispose()


@contextmanager
def _cluster(settings: Settings, token: str) -> Iterator[Client]:
    allowed = DEFAULTS["events"]["allow"]
    with (
        LocalCluster(
            n_workers=2,
            # One thread per worker: Python 3.11 sometimes fails if two threads parse at once.
            threads_per_worker=1,
            memory_limit="2GiB",
            preload=_IGNORE_CTRL_C,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(
            client,
            endpoint=settings.url,
            token=token,
            name="demo",
            interval="2s",
            tags={"project": "demo"},
            events__allow=[*allowed, workload.TOPIC],
        )
        yield client


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
