"""A real PostgreSQL server for tests, on a socket in a folder of its own; no port is taken."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0

#: What a crash of the machine would lose is worth nothing here, and syncing costs half the time.
#: A crash of the server alone loses nothing.
_QUICKER = {"fsync": "off", "full_page_writes": "off"}


def find_binaries() -> Path | None:
    """Return the folder of the newest server that is installed, or None."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[4])
    )
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).resolve().parent


class PostgresServer:
    """A server with databases that :meth:`create` makes. Use it in a with-statement.

    As root it runs as the user ``postgres``, which Debian's package makes: it refuses to be root.
    Unless ``durable``, it would lose data in a crash of the machine.
    """

    def __init__(self, binaries: Path, *, durable: bool = False) -> None:
        self._binaries = binaries
        self._settings = {} if durable else _QUICKER
        # Not in pytest's folder, which other users cannot enter; and a socket's path is short.
        self._folder = Path(tempfile.mkdtemp(prefix="daskscope-postgresql-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
        options = ("-U", "daskscope", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        subprocess.run(
            self._as_user("initdb", "-D", self._folder / "data", *options),
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
        )
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    @property
    def pid(self) -> int:
        """The server's process; those that work for clients are its children."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str) -> str:
        """Return the address of ``database``."""
        return f"postgresql+psycopg://daskscope@/{database}?host={self._folder}"

    def create(self, template: str = "template0", options: str = "") -> str:
        """Make a database, a copy of ``template``, and return its name."""
        self._made += 1
        name = f"test{self._made}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy {options}")
        return name

    def start(self) -> None:
        """Start the server and return once it answers."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": self._folder,
            **self._settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with Path(self._folder, "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as_user("postgres", "-D", self._folder / "data", *options),
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                return self._execute("SELECT 1")
            except OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop("QUIT")
                    raise AssertionError(Path(self._folder, "log").read_text()) from None
            time.sleep(0.05)

    def stop(self, how: str = "INT") -> None:
        """End the server: ``INT`` without waiting for clients, ``QUIT`` as in a crash."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(getattr(signal, f"SIG{how}"))
        try:
            self._process.wait(_STOP_SECONDS)
        finally:
            self._process.kill()

    def crash(self) -> None:
        """Kill the server and all that work for clients, wherever they are: no one tidies up."""
        family = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        self.stop("KILL")
        for pid in map(int, family):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # The next server does not start while one of the last is there.
        deadline = time.monotonic() + _STOP_SECONDS
        while any(Path(f"/proc/{pid}").exists() for pid in family):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _execute(self, statement: str) -> None:
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(statement))
        finally:
            engine.dispose()

    def _as_user(self, program: str, *arguments: object) -> list[str]:
        command = [str(self._binaries / program), *map(str, arguments)]
        if os.geteuid() != 0:
            return command
        # It ends with the tests even where those are killed.
        user = ("--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=INT")
        return ["setpriv", *user, *command]
