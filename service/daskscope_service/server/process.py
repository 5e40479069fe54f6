"""Runs the application on granian, in a process that a small one supervises."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import ipaddress
import logging
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import socket
import threading
import time
from typing import Any

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server import Server

from daskscope.errors import ConfigurationError
from daskscope_service.server import logs, tls
from daskscope_service.settings import Settings

#: Seconds that requests under way get to finish when the service is asked to stop; then it is
#: killed. That must be before Docker kills it, after ten seconds.
_GRACE_SECONDS = 8

#: Seconds in which the headers of a request must arrive. They count from the end of the previous
#: request on the same connection, so this is longer than the time between two heartbeats.
_HEADER_SECONDS = 30

#: Bytes of the headers of a request, and of data that is received before it is read.
_BUFFER = 64 * 1024

#: Connections at a time. Each cluster keeps one, and each takes one open file.
_CONNECTIONS = 12_000
_OTHER_FILES = 500
_LEAST_CONNECTIONS = 128

logger = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. With TLS, SIGHUP or a change of its files reads them again.

    Raises
    ------
    SystemExit
        With status 1, if the application could not start.
    """
    server = Server(
        "daskscope",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.RSGI,
        workers=1,  # one writer; more processes would only contend for SQLite's lock
        backpressure=_connections(),
        websockets=False,
        # A client of HTTP/2 can reset its requests and send more, so nothing bounds how many wait
        # for the event loop. With HTTP/1 a connection carries one request at a time.
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(
            header_read_timeout=_HEADER_SECONDS * 1000, max_buffer_size=_BUFFER
        ),
        log_level=LogLevels.error,
        log_dictconfig=logs.configuration(settings, in_background=True),
        workers_kill_timeout=_GRACE_SECONDS,
        ssl_cert=settings.tls_cert,
        ssl_key=settings.tls_key,
        ssl_protocol_min=SSLProtocols.tls12,  # some proxies speak no 1.3 to what is behind them
    )
    if settings.tls_cert is not None:
        server.on_startup(functools.partial(_renew_certificates, server, settings))
    server.main_loop_interrupt = _Wakeup(server)  # type: ignore[assignment]
    server.serve(target_loader=functools.partial(_load, settings), wrap_loader=False)


class _Wakeup:
    """What the supervising process waits for, in place of the server's ``threading.Event``.

    Each signal ends the wait. With an Event it need not: Python calls a signal's handler in the
    main thread, once that runs, and the system may give the signal to another thread. Nor does an
    Event end it if the signal came just before the server clears the Event, as it does to reload.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._is_set = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def set(self) -> None:
        """End the wait, from a signal's handler or from a thread."""
        self._is_set = True
        with contextlib.suppress(BlockingIOError):  # what fills the pipe ends the wait, too
            os.write(self._waker, b"\0")

    def clear(self) -> None:
        """Let the next wait last until something new comes."""
        self._is_set = False

    def wait(self) -> None:
        """Return once it is set, or a signal asks to stop or to reload."""
        while not (self._is_set or self._server.interrupt_signal or self._server.reload_signal):
            os.read(self._woken, 1024)


def check(settings: Settings) -> None:
    """Raise ConfigurationError if the service cannot listen as configured, or must not."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls.check(settings.tls_cert, settings.tls_key)
    addresses = _addresses(settings)
    local = all(ipaddress.ip_address(address[4][0]).is_loopback for address in addresses)
    if not local and settings.tls_cert is None and not settings.trusted_proxies:
        raise ConfigurationError(
            f"without TLS, others can intercept tokens and passwords sent to {settings.host}. "
            "Choose one: serve HTTPS with --tls-cert and --tls-key; let a proxy do TLS and "
            "name its address with --trusted-proxy; or listen on this machine only, with "
            "--host 127.0.0.1"
        )
    everywhere = any(ipaddress.ip_address(address[4][0]).is_unspecified for address in addresses)
    if (everywhere or settings.trusted_proxies) and not settings.public_url:
        raise ConfigurationError(
            "set the address that users use, because links point to it: --public-url "
            "https://NAME, or DASKSCOPE_PUBLIC_URL"
        )
    if settings.oidc_issuer:
        _check_issuer(settings.oidc_issuer)
    _try_address(settings, addresses[0])


def _check_issuer(issuer: str) -> None:
    from daskscope_service.accounts.openid import is_safe

    if not is_safe(issuer):
        raise ConfigurationError(
            f"DASKSCOPE_OIDC_ISSUER is {issuer!r}; it must be an address that begins with https://"
        )


def _addresses(settings: Settings) -> list[Any]:
    try:
        return socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _cannot_listen(settings, error, "is it an address of this machine?") from error


def _try_address(settings: Settings, info: Any) -> None:
    # The server shares its port with others that offer to share it (SO_REUSEPORT), so a second
    # service would silently take half of the first one's requests.
    family, kind, protocol, _, address = info
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise _cannot_listen(
            settings,
            error,
            "is another service running there? Choose another port with --port or DASKSCOPE_PORT",
        ) from error


def _cannot_listen(settings: Settings, error: OSError, advice: str) -> ConfigurationError:
    return ConfigurationError(
        f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; "
        f"{advice}"
    )


def _renew_certificates(server: Any, settings: Settings) -> None:
    # A process reads the certificate when it starts, so the server starts another process and then
    # ends the old one. This replaces the server's own handler of SIGHUP, which would not check the
    # files.
    cert, key = settings.tls_cert, settings.tls_key
    assert cert is not None
    assert key is not None

    def renew(*_: object) -> None:
        try:
            tls.check(cert, key)
        except ConfigurationError as error:
            logger.error(
                "the new certificate cannot be used, so the old one stays in use: %s", error
            )
            return
        logger.info("the certificate has changed; new connections use the new one")
        # The server resolves links only once, and a renewal changes where they lead.
        server.build_ssl_context(cert, key, None, SSLProtocols.tls12, None, [], False)
        server.signal_handler_reload()

    signal.signal(signal.SIGHUP, renew)
    tls.watch(cert, key, lambda: os.kill(os.getpid(), signal.SIGHUP))


def _connections() -> int:
    """Return how many connections are possible; allow as many open files as the system permits."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _CONNECTIONS + _OTHER_FILES if most == resource.RLIM_INFINITY else most
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return max(min(_CONNECTIONS, files - _OTHER_FILES), _LEAST_CONNECTIONS)


def _load(settings: Settings) -> Any:
    if multiprocessing.parent_process() is not None:
        # Until the server takes signals, the handler that came with the copy of the parent would
        # swallow a request to stop, and the parent would wait for all of the grace.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Runs in the process that serves; the one that supervises it stays small without these imports.
    from daskscope_service.application import close_app, create_app, headers, limits
    from daskscope_service.server.connections import Connections
    from daskscope_service.server.front import Front
    from daskscope_service.server.refusals import Refusals
    from daskscope_service.services import services

    if multiprocessing.parent_process() is not None:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    app = create_app(settings)
    parts = services(app)
    logs.count_drops(parts.instruments.log_lines_dropped.inc)
    atexit.register(close_app, app)
    # Objects that exist now stay. If each garbage collection scanned them, it would stop all
    # threads for a twentieth of a second.
    gc.collect()
    gc.freeze()
    return Front(
        app,
        threads=settings.threads,
        limits=limits(settings),
        at_once=parts.fast_path.answer,
        sender_of=parts.tokens.sender_of,
        refusals=Refusals(parts.instruments, headers(settings)),
        connections=Connections(
            settings.port, idle=settings.connection_idle, places=_connections()
        ),
    )


def _end_with_parent() -> None:
    # A parent that was killed cannot ask its child to stop, and the port must become free.
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)  # a process that is still starting may miss it
