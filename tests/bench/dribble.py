"""How long pages take while many connections send a byte now and then, against without them."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.bench.questions import Reader, make_owner
from tests.bench.results import Figure
from tests.bench.stock import Stock
from tests.bench.stock_fill import fill
from tests.certificates import Certificates
from tests.service_process import ServiceProcess

#: Connections that dribble, and the seconds in which each sends a byte.
CONNECTIONS = 200
_SECONDS = 1.0

#: The ratio that is hardly more than noise.
GOAL = 1.25

#: The stock.
_CLUSTERS = 100
_PAGES = ("/", "/clusters", "/computations", "/exceptions", "/api/v1/clusters")
_WORKSPACE = "bench"

#: What they begin with. A body is waited for, a head that is not complete likewise.
_BEGUN = (
    b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n",
    b"POST /v1/metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: ",
)


def measure(rounds: int, asks: int, tell: Callable[[str], None]) -> list[Figure]:
    """Ask for pages ``asks`` times a turn, in ``rounds`` of two: with and without connections.

    First without TLS, then with it.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data = Path(folder, "data")
        with _serving(data) as service:
            fill(service, Stock(_WORKSPACE, _CLUSTERS, int(time.time())), lambda _: None)
            make_owner(service, _WORKSPACE)
            figures = [_measure(service, "", rounds, asks, tell)]
        with _serving(data, **Certificates(Path(folder)).options) as service:
            return [*figures, _measure(service, ", TLS", rounds, asks, tell)]


def _serving(data: Path, **options: Any) -> ServiceProcess:
    return ServiceProcess(data, log_level="warning", retention_interval=0, **options)


def _measure(
    service: ServiceProcess, how: str, rounds: int, asks: int, tell: Callable[[str], None]
) -> Figure:
    slowest: dict[bool, list[float]] = {False: [], True: []}
    with Reader(service, service.token(workspace=_WORKSPACE)) as reader:
        _ask(reader, asks)  # to warm up
        for number in range(rounds):
            for dribble in (False, True) if number % 2 else (True, False):
                with _dribbling(service) if dribble else contextlib.nullcontext():
                    slowest[dribble].append(_ask(reader, asks))
            tell(
                f"pages{how}, round {number + 1} of {rounds}: "
                f"p95 {1000 * slowest[False][-1]:.1f} ms, while {CONNECTIONS} connections dribble "
                f"{1000 * slowest[True][-1]:.1f} ms"
            )
    what = f"pages' p95 while {CONNECTIONS} connections dribble{how}"
    return Figure.of_ratios(what, slowest[True], slowest[False], goal=GOAL)


def _ask(reader: Reader, asks: int) -> float:
    """Return the 95th percentile of the seconds that pages take."""
    seconds = [reader.ask(page)[0] for page in _PAGES * asks]
    return statistics.quantiles(seconds, n=20)[-1]


@contextmanager
def _dribbling(service: ServiceProcess) -> Iterator[None]:
    ended, begun = threading.Event(), threading.Event()
    thread = threading.Thread(target=_dribble, args=(service, begun, ended), daemon=True)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _connected(service: ServiceProcess) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", service.port))
    if not isinstance(service.verify, str):
        return peer
    trusting = ssl.create_default_context(cafile=service.verify)
    return trusting.wrap_socket(peer, server_hostname="127.0.0.1")


def _is_open(peer: socket.socket) -> bool:
    """Return whether what came were only session tickets, which come after a TLS handshake."""
    peer.setblocking(False)
    try:
        peer.recv(1)
    except ssl.SSLWantReadError:
        peer.setblocking(True)
        return True
    except OSError:
        pass
    return False


def _dribble(service: ServiceProcess, begun: threading.Event, ended: threading.Event) -> None:
    kinds = itertools.cycle(_BEGUN)
    with selectors.DefaultSelector() as answers, ExitStack() as all_peers:
        open_now: list[socket.socket] = []
        while not ended.is_set():
            while len(open_now) < CONNECTIONS:  # the service closes them when their time is over
                peer = all_peers.enter_context(_connected(service))
                peer.sendall(next(kinds))
                answers.register(peer, selectors.EVENT_READ)
                open_now.append(peer)
            begun.set()
            for peer in list(open_now):
                if ended.wait(_SECONDS / CONNECTIONS):
                    return
                with contextlib.suppress(OSError):
                    peer.sendall(b"x")
            for key, _ in answers.select(0):
                peer = key.fileobj  # type: ignore[assignment]
                if _is_open(peer):
                    continue
                answers.unregister(peer)
                open_now.remove(peer)
                peer.close()
