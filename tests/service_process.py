"""A real service in a process of its own, for tests of anything that talks to it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

import requests
from sqlalchemy import Engine

from daskscope_service.accounts import tokens
from daskscope_service.accounts.tokens import USUAL, Scope
from daskscope_service.db.engine import open_database
from daskscope_service.settings import Settings, option, variable
from tests import quick_rounds, sqlite_template
from tests.forked import ForkedProcess
from tests.patience import PATIENCE, wait_until
from tests.ports import free_port

_STOP_SECONDS = PATIENCE

_SETTINGS = {setting.name: setting for setting in dataclasses.fields(Settings)}


class ServiceProcess:
    """``daskscope serve`` on a free loopback port.

    Use it in a with-statement, or call :meth:`start` and :meth:`stop`. ``settings`` are further
    options by their names in :class:`~daskscope_service.settings.Settings`, for example
    ``queue_size=1``; a tuple gives the option several times. ``output`` is what the process wrote
    so far. The database is what is at ``database_url``, or SQLite in ``data_dir``: a copy of a
    finished one, or with ``empty`` what the service makes itself. With ``tls_cert`` it is asked by
    HTTPS; ``authority`` is the file to check that with. With ``quick`` it does its work in
    the background more often, see :mod:`tests.quick_rounds`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        authority: Path | None = None,
        database_url: str = "",
        empty: bool = False,
        quick: bool = False,
        **settings: Any,
    ) -> None:
        self.data_dir = data_dir
        self._quick = quick
        self._empty = empty
        self.port = port or free_port()
        self.url = f"{'https' if 'tls_cert' in settings else 'http'}://127.0.0.1:{self.port}"
        self.verify = True if authority is None else str(authority)
        self.output = ""
        self.database_url = database_url
        self._settings = settings
        self._process: ForkedProcess | None = None
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process that was started; the one that serves is its child."""
        assert self._process is not None
        return self._process.pid

    @property
    def engine(self) -> Engine:
        """The service's database, opened a second time."""
        if self._engine is None:
            self._engine = open_database(
                Settings(
                    data_dir=self.data_dir,
                    database_url=self.database_url,
                    port=self.port,
                    code_keys=self._settings.get("code_keys", ()),
                )
            )
        return self._engine

    @property
    def database_options(self) -> tuple[str, ...]:
        """The options with which commands find the service's database."""
        return (
            *("--data-dir", str(self.data_dir)),
            *(("--database-url", self.database_url) if self.database_url else ()),
        )

    @property
    def sign_in_link(self) -> str:
        """The sign-in link that the service printed."""
        # With what ends it: the process may have written only a part so far.
        printed = re.compile(r"(http\S+/sign-in\?\S+)\s")
        found = wait_until(lambda: printed.search(self.output), what=lambda: self.output)
        return found[1]

    def wait_for(self, text: str | re.Pattern[str]) -> None:
        """Return once the process has written ``text``."""
        pattern = re.compile(re.escape(text)) if isinstance(text, str) else text
        wait_until(lambda: pattern.search(self.output), what=lambda: self.output)

    def token(self, scopes: Iterable[Scope] = USUAL, workspace: str = "default") -> str:
        """Return a fresh token; the workspace is made if it is missing."""
        return tokens.create(self.engine, workspace=workspace, label="test", scopes=scopes)

    def start(self) -> None:
        """Start the process and return once it answers."""
        if not self.database_url and not self._empty:
            sqlite_template.copy_to(self.data_dir)
        options = {"port": self.port, **self._settings}
        arguments = ["serve", *self.database_options]
        # Settings of the developer's own shell have no business here.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DASKSCOPE_")}
        if self._quick:
            environment[quick_rounds.VARIABLE] = "1"
        for name, value in options.items():
            setting = _SETTINGS[name]
            if setting.metadata.get("secret"):
                ending = "_FILE" if isinstance(value, Path) else ""
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                environment[f"{variable(setting.name)}{ending}"] = text
                continue
            for one in value if isinstance(value, tuple) else (value,):
                arguments += [option(setting), str(one)]
        self._process = ForkedProcess(arguments, environment | {"PYTHONUNBUFFERED": "1"})
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self._answers() or self._ended())
        if not self._answers():
            self._process.kill()
            self._reader.join(_STOP_SECONDS)
            raise AssertionError(f"the service did not start:\n{self.output}")

    def stop(self, how: Literal["TERM", "INT", "KILL"] | None = "TERM") -> int:
        """End the process, return its exit code, and free its port.

        ``KILL`` gives no warning; None tells nothing to a process that was told already.
        """
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
        assert self._process is not None
        if how is not None and self._process.poll() is None:
            self._process.send_signal(getattr(signal, f"SIG{how}"))
        try:
            code = self._process.wait(_STOP_SECONDS)
        finally:
            self._process.kill()
        # The output ends once the last process that holds it, so the serving child too, is gone.
        self._reader.join(_STOP_SECONDS)
        assert not self._reader.is_alive(), "the service left a process behind"
        return code

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/readyz", timeout=5, verify=self.verify).ok
        except requests.ConnectionError:
            return False

    def _read_output(self) -> None:
        assert self._process is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self.output += line
