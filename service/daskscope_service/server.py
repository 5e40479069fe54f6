"""Runs the application on granian, in one process beside a small one that looks after it."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import threading

from flask import Flask
from granian.constants import Interfaces
from granian.log import LogLevels
from granian.server import Server

from daskscope.errors import ConfigurationError
from daskscope_service.application import close_app, create_app
from daskscope_service.settings import Settings

#: Seconds that requests under way get to finish once the service is told to stop.
_GRACE_SECONDS = 2


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises
    ------
    SystemExit
        With status 1: the application could not start.
    """
    Server(
        "daskscope",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.WSGI,
        workers=1,  # one writer; more processes would only contend for SQLite's lock
        blocking_threads=settings.threads,
        websockets=False,
        log_level=LogLevels.error,
        workers_kill_timeout=_GRACE_SECONDS,
    ).serve(target_loader=functools.partial(_load, settings), wrap_loader=False)


def check_address(settings: Settings) -> None:
    """Raise ConfigurationError if the service cannot listen where it should.

    The server shares its port with others that offer to share it (SO_REUSEPORT), so a second
    service would silently take half of the first one's requests.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; "
            "is another service running there? Choose another port with --port or DASKSCOPE_PORT"
        ) from error


def _load(settings: Settings) -> Flask:
    # Runs in the process that serves.
    if multiprocessing.parent_process() is not None:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    app = create_app(settings)
    atexit.register(close_app, app)
    return app


def _end_with_parent() -> None:
    # A parent that was killed cannot tell its child to stop; the port must not stay taken.
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
