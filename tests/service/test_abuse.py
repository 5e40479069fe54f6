"""Nobody stops the service: not by sending slowly, not by sending much, not by reading slowly."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
import logging
import socket
import ssl
import struct
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from daskscope.codec import encode
from daskscope_service.server import connections, front, refusals
from daskscope_service.server.connections import Connections
from daskscope_service.server.front import Front
from daskscope_service.server.reception import SMALL, GoneError, Reception
from daskscope_service.server.refusals import MOST_LOGGED, Refusals
from daskscope_service.server.turns import Places, Turns
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.web.problems import Problem
from tests.certificates import Certificates
from tests.patience import PATIENCE, wait_until
from tests.service.beats import make_beat, make_cluster
from tests.service.test_bodies import most_memory
from tests.service_process import ServiceProcess

MIB = 1024 * 1024
FORM = "application/x-www-form-urlencoded"

#: What HTTP/2 begins with, and an empty frame of settings.
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


@pytest.fixture(scope="module", params=["in clear", "by TLS"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    """A service whose few threads would soon be taken."""
    folder = tmp_path_factory.mktemp("abuse")
    options: dict[str, Any] = {"threads": 4}
    if request.param == "by TLS":
        options |= Certificates(folder).options
    with ServiceProcess(folder / "data", **options) as started:
        yield started


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    """Closes what it is given, at the end."""
    with ExitStack() as stack:
        yield stack


def connect(service: ServiceProcess, peers: ExitStack, *protocols: str) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)
    if service.url.startswith("https:"):
        context = ssl.create_default_context(cafile=str(service.verify))
        context.set_alpn_protocols(protocols or ["http/1.1"])
        peer = context.wrap_socket(peer, server_hostname="127.0.0.1")
    return peers.enter_context(peer)


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: x", *lines, "", "")).encode()


def ask(service: ServiceProcess, path: str) -> requests.Response:
    return requests.get(service.url + path, timeout=PATIENCE, verify=service.verify)


def beat(service: ServiceProcess, token: str) -> requests.Response:
    return requests.post(
        f"{service.url}/api/v1/heartbeats",
        data=encode(make_beat(make_cluster())),
        headers={"Authorization": f"Bearer {token}"},
        timeout=PATIENCE,
        verify=service.verify,
    )


def check_all_is_well(service: ServiceProcess, token: str) -> None:
    for path in ("/healthz", "/readyz", "/sign-in", "/static/app.css"):
        assert ask(service, path).status_code == 200
    assert beat(service, token).status_code == 200


def test_connections_that_dribble_change_nothing(service: ServiceProcess, peers: ExitStack) -> None:
    token = service.token()
    shown = f"Authorization: Bearer {token}"
    long, endless = "Content-Length: 1000000", "Transfer-Encoding: chunked"
    begun = [
        b"",
        b"P",
        b"POST /sign-in HTTP/1.1\r\nHost: x\r\n",
        head("/nope", "Content-Length: 1000"),
        head("/sign-in", "Content-Type: application/x-www-form-urlencoded", long) + b"a=",
        head("/api/v1/login/device", "Content-Type: application/json", endless) + b"1\r\n{\r\n",
        head("/v1/metrics", long) + b"x",
        head("/v1/metrics", shown, "Content-Type: application/x-protobuf", long) + b"\n",
        head("/api/v1/heartbeats", shown, "Content-Length: 1000") + b"{",
        head("/api/v1/heartbeats", shown, endless) + b"1\r\n{\r\n",
        head("/healthz", long),
        head("/readyz", long),
    ]
    assert beat(service, token).ok  # it was shown before
    dribbling = []
    for number in range(200):
        what = begun[number % len(begun)]
        peer = connect(service, peers)
        peer.sendall(what)
        dribbling.append(peer)
    with _dribbles(dribbling) as sent:
        check_all_is_well(service, token)
        assert wait_until(lambda: sent.total() > len(dribbling))
        check_all_is_well(service, token)


@contextmanager
def _dribbles(peers: list[socket.socket]) -> Iterator[Counter[int]]:
    """Send a byte to each of ``peers`` now and then; count them by connection."""
    ended, sent = threading.Event(), Counter[int]()

    def dribble() -> None:
        while not ended.wait(0.3):
            for peer in peers:
                with suppress(OSError):  # the service may have closed it
                    peer.send(b"x")
                    sent[peer.fileno()] += 1

    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def test_http_2_is_not_offered(service: ServiceProcess, peers: ExitStack) -> None:
    peer = connect(service, peers, "h2", "http/1.1")
    if isinstance(peer, ssl.SSLSocket):
        assert peer.selected_alpn_protocol() == "http/1.1"
    # A client that does not ask is refused.
    peer.sendall(HTTP2)
    assert peer.recv(12) in (b"", b"HTTP/1.1 400", b"HTTP/1.1 505")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.parametrize("path", ["/sign-in", "/healthz"])
def test_requests_whose_clients_go_at_once_keep_no_other_waiting(
    service: ServiceProcess, path: str
) -> None:
    token = service.token()
    ends = threading.Event()
    reset_when_closed = struct.pack("ii", 1, 0)

    def flood() -> None:
        while not ends.is_set():
            with ExitStack() as own, contextlib.suppress(OSError):
                peer = connect(service, own)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_when_closed)
                peer.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                ends.wait(0.0005)  # it is received meanwhile

    attackers = [threading.Thread(target=flood) for _ in range(4)]
    for one in attackers:
        one.start()
    try:
        with contextlib.closing(client_at(service, "127.0.0.2")) as client:
            for _ in range(3):
                for asked in ("/healthz", "/readyz", "/sign-in"):
                    client.request("GET", asked)
                    answer = client.getresponse()
                    assert (answer.status, bool(answer.read())) == (200, True)
    finally:
        ends.set()
        for one in attackers:
            one.join()
    # This address is the attackers', whose last requests may still have its places.
    wait_until(lambda: ask(service, "/healthz").status_code == 200, what="a place")
    check_all_is_well(service, token)


@pytest.fixture
def impatient_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service that closes connections soon."""
    with ServiceProcess(tmp_path / "data", connection_idle=0.5) as started:
        yield started


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="connections are closed on Linux")
def test_connections_without_a_request_are_closed(
    impatient_service: ServiceProcess, peers: ExitStack
) -> None:
    service = impatient_service
    host = f"Host: 127.0.0.1:{service.port}"
    begun = [b"", b"P", f"GET /healthz HTTP/1.1\r\n{host}\r\n\r\n".encode()]
    idle = [connect(service, peers) for _ in begun]
    busy = connect(service, peers)
    for peer, what in zip(idle, begun, strict=True):
        peer.sendall(what)
    busy.sendall(head("/sign-in", host, f"Content-Type: {FORM}", "Content-Length: 3") + b"a=")
    for peer in idle:
        while peer.recv(65536):
            pass
    # One that carries a request stays, however long ago that began.
    busy.sendall(b"1")
    assert busy.recv(12) == b"HTTP/1.1 400"  # the form has no code


def test_idle_connections_make_room_first_those_of_who_has_most() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with ExitStack() as stack:
        stack.enter_context(listener)
        there = Connections(listener.getsockname()[1], idle=3600, places=8)
        ends: list[tuple[socket.socket, socket.socket]] = []

        def come(address: str) -> None:
            peer = socket.create_connection(listener.getsockname(), source_address=(address, 0))
            ends.append((stack.enter_context(peer), stack.enter_context(listener.accept()[0])))
            peer.setblocking(False)

        def stay() -> list[int]:
            there.round()
            return [number for number, (peer, _) in enumerate(ends) if not _is_closed(peer)]

        come("127.0.0.2")
        for _ in range(5):
            come("127.0.0.1")
        assert stay() == [0, 1, 2, 3, 4, 5]
        come("127.0.0.1")
        there.begin("{}:{}".format(*ends[1][0].getsockname()))
        assert stay() == [0, 1, 5, 6]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
def test_one_address_may_send_a_thousand_bodies_at_a_time(
    local_service: ServiceProcess, peers: ExitStack
) -> None:
    service = local_service
    token = service.token()
    begun = head("/sign-in", f"Content-Type: {FORM}", f"Content-Length: {SMALL}") + b"a="
    attackers = peers.enter_context(ExitStack())

    def sign_in(address: str) -> http.client.HTTPResponse:
        client = peers.enter_context(contextlib.closing(client_at(service, address)))
        client.request("POST", "/sign-in", b"a=1", {"Content-Type": FORM})
        return client.getresponse()

    usual = sign_in("127.0.0.1").status  # of a form with nothing in it
    assert usual not in (429, 503)

    def is_full() -> bool:
        # More each time: on a slow machine the first bodies have run out of time by now.
        for _ in range(1000):
            connect(service, attackers).sendall(begun)
        return sign_in("127.0.0.1").status == 503

    wait_until(is_full, what="a refusal")
    refused = sign_in("127.0.0.1")
    assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
    assert refused.headers["Cache-Control"] == "private, no-store"
    assert b"of your address" in refused.read()

    # What has no body is answered there, too, and other addresses are as free as ever.
    for path in ("/healthz", "/readyz", "/sign-in"):
        assert ask(service, path).status_code == 200
    assert sign_in("127.0.0.2").status == usual
    client = peers.enter_context(contextlib.closing(client_at(service, "127.0.0.2")))
    shown = {"Authorization": f"Bearer {token}"}
    client.request("POST", "/api/v1/heartbeats", encode(make_beat(make_cluster())), shown)
    assert client.getresponse().status == 200

    attackers.close()
    wait_until(lambda: sign_in("127.0.0.1").status == usual, what="a free place")


def client_at(service: ServiceProcess, address: str) -> http.client.HTTPConnection:
    where, source = ("127.0.0.1", service.port), (address, 0)
    if service.url.startswith("https:"):
        context = ssl.create_default_context(cafile=str(service.verify))
        return http.client.HTTPSConnection(
            *where, timeout=PATIENCE, source_address=source, context=context
        )
    return http.client.HTTPConnection(*where, timeout=PATIENCE, source_address=source)


def _is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what has arrived")
def test_connections_whose_answers_nobody_reads_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_MOST_UNREAD", 1000_000)
    monkeypatch.setattr(connections, "_FEW_UNREAD", 500_000)
    listener = socket.create_server(("127.0.0.1", 0))
    with ExitStack() as stack:
        stack.enter_context(listener)
        there = Connections(listener.getsockname()[1], idle=3600, places=100)
        ends: list[tuple[socket.socket, socket.socket]] = []
        for address in ("127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3"):
            peer = socket.create_connection(listener.getsockname(), source_address=(address, 0))
            ends.append((stack.enter_context(peer), stack.enter_context(listener.accept()[0])))
            peer.setblocking(False)

        def answer(number: int, size: int) -> None:
            name = "{}:{}".format(*ends[number][0].getsockname())
            there.begin(name)
            there.end(name, size)

        def stay() -> list[int]:
            there.round()
            return [number for number, (peer, _) in enumerate(ends) if not _is_closed(peer)]

        # What does not fit into the kernel's buffer is in the server's memory alone.
        for number in range(4):
            answer(number, 240_000)
        # One that has read all of a larger answer is as good as any.
        reader, writer = ends[4]
        reader.setblocking(True)
        threading.Thread(target=writer.sendall, args=(bytes(900_000),)).start()
        for _ in range(9):
            assert len(reader.recv(100_000, socket.MSG_WAITALL)) == 100_000
        reader.setblocking(False)
        answer(4, 900_000)
        assert stay() == [0, 1, 2, 3, 4]
        # One too much, of those who have most: they go until half of it is left.
        answer(0, 100_000)
        there.begin("{}:{}".format(*ends[1][0].getsockname()))  # with a request, or without
        assert stay() == [2, 3, 4]


def test_an_address_may_have_as_many_places_as_are_free() -> None:
    places = Places(6, "are here")
    with ExitStack() as stack:

        def take(address: str) -> bool:
            with contextlib.suppress(Problem):
                stack.enter_context(places.place(address))
                return True
            return False

        assert [take("a") for _ in range(4)] == [True, True, True, False]
        assert [take("b") for _ in range(3)] == [True, True, False]
        assert take("c")
    with places.place("b"):
        pass


def test_requests_that_wait_get_their_turn_address_by_address() -> None:
    order: list[str] = []

    async def run() -> None:
        turns = Turns(1, 1)
        goes_on = asyncio.Event()

        async def ask(who: str) -> None:
            async with turns.turn(who[0]):
                order.append(who)
                await goes_on.wait()

        asked = [
            asyncio.create_task(ask(who)) for who in ("a1", "a2", "a3", "gone", "a4", "b1", "c1")
        ]
        await let_in()  # each waits, or has its turn
        asked[3].cancel()
        goes_on.set()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(run())
    assert order == ["a1", "a2", "b1", "c1", "a3", "a4"]


def test_one_address_does_not_have_all_turns() -> None:
    order: list[str] = []

    async def run() -> None:
        turns = Turns(4, 2)
        ends = {who: asyncio.Event() for who in ("a1", "a2", "a3", "a4", "b1", "c1", "c2")}

        async def ask(who: str) -> None:
            async with turns.turn(who[0]):
                order.append(who)
                await ends[who].wait()

        async def end(who: str) -> None:
            ends[who].set()
            for _ in range(5):
                await let_in()

        asked = [asyncio.create_task(ask(who)) for who in ends]
        await let_in()
        assert order == ["a1", "a2", "b1", "c1"]
        await end("b1")
        assert order[4:] == ["c2"]  # and not a third one of a
        await end("c1")
        assert order[5:] == []
        await end("a2")
        assert order[5:] == ["a3"]
        for who in ends:
            await end(who)
        await asyncio.gather(*asked)

    asyncio.run(run())
    assert order[6:] == ["a4"]


def test_one_address_that_asks_for_much_at_a_time_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "_MOST_WAITING", 12)
    goes_on = threading.Event()
    order: list[str] = []

    def app(environ: Any, start: Any) -> list[bytes]:
        goes_on.wait()
        order.append(environ["REMOTE_ADDR"])
        start("200 OK", [])
        return []

    async def run() -> list[int]:
        there = make_front(app)
        addresses = [*["192.0.2.1"] * 8, "192.0.2.2", *["2001:db8::1"] * 2, "2001:db8::2"]
        asked, under_way = list[Answered](), list[asyncio.Task[None]]()
        for number, address in enumerate(addresses):
            asked.append(Answered())
            scope = get(address, "/", number)
            under_way.append(asyncio.create_task(there.__rsgi__(scope, asked[-1])))
        await let_in()
        refused = [one.status for one in asked if one.status]
        goes_on.set()
        await asyncio.gather(*under_way)
        await asyncio.to_thread(there.close)
        return refused

    # Of twelve places it has half, and no one else is refused.
    assert asyncio.run(run()) == [503, 503]
    ours, other, network = "192.0.2.1", "192.0.2.2", "2001:db8::"
    assert order[:2] == [ours] * 2  # they had a thread, or the next one, before others came
    # A network of IPv6 is one address.
    assert order[2:5] == [ours, other, f"{network}1"]
    assert order[5:7] == [ours, f"{network}1"]
    assert order[7:9] == [ours, f"{network}2"]


def test_what_one_address_has_sent_keeps_no_other_from_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "_MOST_COMING", 1000)
    answered: list[str] = []

    def app(environ: Any, start: Any) -> list[bytes]:
        answered.append(environ["REMOTE_ADDR"])
        start("200 OK", [])
        return []

    async def run() -> list[int]:
        there = make_front(app)
        asked = [Answered() for _ in range(701)]
        addresses = [*["192.0.2.1"] * 700, "192.0.2.2"]
        await asyncio.gather(
            *(
                there.__rsgi__(get(address, "/healthz", number), one)
                for number, (address, one) in enumerate(zip(addresses, asked, strict=True))
            )
        )
        await asyncio.to_thread(there.close)
        return [one.status for one in asked]

    # Half of all places are free for others. Theirs is not the last turn.
    assert asyncio.run(run()) == [200] * 500 + [503] * 200 + [200]
    assert answered.index("192.0.2.2") < 50


def test_who_asks_for_much_still_hears_whether_the_service_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "_MOST_WAITING", 4)
    goes_on = threading.Event()

    def app(environ: Any, start: Any) -> list[bytes]:
        if environ["PATH_INFO"] != "/readyz":
            goes_on.wait()
        start("200 OK", [])
        return []

    async def run() -> list[int]:
        there = make_front(app)
        asked = [Answered() for _ in range(9)]
        begun = [asyncio.create_task(there.__rsgi__(get("192.0.2.1", "/"), one)) for one in asked]
        await let_in()
        ready = Answered()
        await there.__rsgi__(get("192.0.2.1", "/readyz"), ready)
        refused = [one.status for one in asked if one.status]
        goes_on.set()
        await asyncio.gather(*begun)
        await asyncio.to_thread(there.close)
        return [ready.status, *refused]

    ready, *refused = asyncio.run(run())
    assert ready == 200
    assert set(refused) == {503}


async def _not_at_once(*_: object) -> None:
    return None


async def let_in() -> None:
    """Wait until the event loop has begun to work on a few requests."""
    for _ in range(3):
        await asyncio.sleep(0)


def make_front(
    app: Any,
    *,
    limits: dict[str, int] | None = None,
    sender_of: Callable[[str], str | None] = lambda _: None,
) -> Front:
    return Front(
        app,
        threads=1,
        limits=limits or {},
        sender_of=sender_of,
        at_once=_not_at_once,
        refusals=Refusals(ServiceMetrics(), []),
        connections=Connections(1, idle=3600, places=100),
    )


def get(address: str, path: str, port: int = 1) -> Any:
    """Return the scope of a request of RSGI."""
    return SimpleNamespace(
        headers={},
        authority="x",
        server="127.0.0.1:1",
        client=f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
        http_version="1.1",
        scheme="http",
        method="GET",
        path=path,
        query_string="",
    )


class Answered:
    """A request of RSGI without a body."""

    status = 0

    def response_bytes(self, status: int, _headers: object, _content: bytes) -> None:
        self.status = status


def test_what_is_no_body_is_refused_in_words(service: ServiceProcess, peers: ExitStack) -> None:
    for body in (b"zz\r\na\r\n", b"-1\r\na\r\n", b"1;" + b"x" * 30_000 + b"\r\na\r\n"):
        peer = connect(service, peers)
        form = f"Content-Type: {FORM}"
        peer.sendall(head("/sign-in", form, "Transfer-Encoding: chunked") + body)
        assert peer.recv(12) == b"HTTP/1.1 400"
    for lengths in ("3\r\nContent-Length: 4", "", "+3", "-1", "3a"):
        peer = connect(service, peers)
        peer.sendall(
            head("/sign-in", f"Content-Type: {FORM}", f"Content-Length: {lengths}") + b"a=1"
        )
        assert peer.recv(12) == b"HTTP/1.1 400"
    assert "Traceback" not in service.output


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 60"),
        ("Content-Length: 5", "Transfer-Encoding: identity"),
        ("Content-Length: 5", "Transfer-Encoding: chunked, identity"),
        ("Content-Length: 5", "Transfer-Encoding: identity, chunked"),
        ("Content-Length: 5", "Transfer-Encoding: xchunked"),
        ("Content-Length: 5", "Transfer-Encoding : chunked"),
        ("Content-Length: 5", "Transfer-Encoding:\r\n chunked"),
        ("Content-Length: 5", "X: y\nTransfer-Encoding: chunked"),
        ("Content-Length: 5", "X: y\rTransfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 40"),
        ("Content-Length: 5, 5",),
        ("Content-Length: 0x5",),
        ("Content-Length: 5\x00",),
        ("Content-Length: 18446744073709551621",),
    ],
    ids=" ".join,
)
def test_a_request_whose_end_may_be_read_in_two_ways_is_the_last_of_its_connection(
    service: ServiceProcess, peers: ExitStack, lines: tuple[str, ...]
) -> None:
    # A proxy in front may see another end, and take what follows for a part of this request.
    peer = connect(service, peers)
    second = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    peer.sendall(head("/nope", *lines) + b"0\r\n\r\n" + second)
    answers = b""
    with contextlib.suppress(ConnectionResetError):
        while received := peer.recv(65536):
            answers += received
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b"HTTP/1.1 4" in answers


def test_what_does_not_reach_the_application_is_answered_as_by_it(
    service: ServiceProcess, peers: ExitStack
) -> None:
    connection = peers.enter_context(contextlib.closing(client_at(service, "127.0.0.1")))
    chunked = {"Content-Type": FORM, "Transfer-Encoding": "chunked"}
    connection.request("POST", "/sign-in", b"zz\r\na\r\n", chunked)
    refused = connection.getresponse()
    assert refused.status == 400
    assert refused.headers["Content-Type"] == "application/problem+json"
    told = json.loads(refused.read())
    usual = {name.lower() for name in ask(service, "/sign-in").headers}
    of_compression = {"vary", "content-encoding"}
    assert usual - of_compression <= {name.lower() for name in refused.headers}
    assert told["request_id"] == refused.headers["X-Request-ID"]


@pytest.mark.slow
def test_what_does_not_reach_the_application_is_logged(service: ServiceProcess) -> None:
    chunked = {"Content-Type": FORM, "Transfer-Encoding": "chunked"}

    def is_logged() -> bool:
        with contextlib.closing(client_at(service, "127.0.0.1")) as connection:
            connection.request("POST", "/sign-in", b"zz\r\na\r\n", chunked)
            asked.append(str(connection.getresponse().headers["X-Request-ID"]))
        return any(id in service.output for id in asked)

    # In some second: those before may have been full of other tests' requests.
    asked: list[str] = []
    wait_until(is_logged, what="a line in the log")


def test_what_does_not_reach_the_application_is_counted() -> None:
    instruments = ServiceMetrics()
    for method in ("GET", "ODD"):
        Refusals(instruments, []).answer(Problem(503, "no place"), method, "127.0.0.1", 0.1)
    [counted] = instruments.requests.collect()
    numbers = {one.labels["method"]: one.value for one in counted.samples if one.value}
    assert numbers == {"GET": 1, "other": 1}


def test_of_many_refused_requests_all_are_counted_and_few_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "daskscope_service.access")
    instruments = ServiceMetrics()
    refusing = Refusals(instruments, [])
    clock = SimpleNamespace(monotonic=iter([1.0] * 30 + [2.5] * 30).__next__)
    monkeypatch.setattr(refusals, "time", clock)
    for _ in range(60):
        refusing.answer(Problem(503, "no place"), "GET", "127.0.0.1", 0.1)
    [counted] = instruments.requests.collect()
    assert sum(one.value for one in counted.samples if one.name.endswith("_total")) == 60
    assert len(caplog.records) == 2 * MOST_LOGGED


@pytest.mark.slow
def test_a_body_that_does_not_come_is_waited_for_no_longer_than_its_time(
    service: ServiceProcess, peers: ExitStack
) -> None:
    shown = f"Authorization: Bearer {service.token()}"
    said = {
        head("/nope", "Content-Length: 1000") + b"x": 404,
        head("/v1/metrics", "Content-Length: 1000") + b"x": 401,
        head("/api/v1/heartbeats", shown, "Content-Length: 1000") + b"{": 408,
        head("/api/v1/heartbeats", shown, "Content-Length: 100000") + b"{": 408,
        head("/api/v1/heartbeats", shown, "Transfer-Encoding: chunked") + b"1\r\n{\r\n": 408,
    }
    begun = {}
    for request, status in said.items():
        begun[connect(service, peers)] = status
        list(begun)[-1].sendall(request)
    for peer, status in begun.items():
        answer = b""
        while part := peer.recv(65536):
            answer += part
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in answer
        if status == 408:
            assert b"too slowly" in answer


@pytest.mark.parametrize("size", [10, SMALL, 5 * MIB])
def test_who_is_refused_is_told_so_after_all_was_sent(service: ServiceProcess, size: int) -> None:
    for path, status in (("/nope", 404), ("/v1/metrics", 401), ("/healthz", 405)):
        if size > SMALL and path != "/v1/metrics":
            continue  # no one sends as much there but to do harm
        answer = requests.post(
            service.url + path,
            data=b"x" * size,
            timeout=PATIENCE,
            verify=service.verify,
        )
        assert answer.status_code == status


def test_who_waits_to_be_asked_for_a_body_is_refused_before_it(
    service: ServiceProcess, peers: ExitStack
) -> None:
    peer = connect(service, peers)
    peer.sendall(head("/sign-in", "Expect: 100-continue", f"Content-Length: {50 * MIB}"))
    assert peer.recv(12) == b"HTTP/1.1 413"


class Dribble(Answered):
    """A request of RSGI that brings ``parts``, and then nothing more."""

    def __init__(self, *parts: bytes, ends: bool = False) -> None:
        self._parts = list(parts)
        self._ends = ends
        self.is_read = False  # all parts of it

    async def __call__(self) -> bytes:
        if not self._ends:
            await asyncio.Event().wait()
        return b"".join(self._parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part
        self.is_read = True
        if not self._ends:
            await asyncio.Event().wait()


def post(workspace: str, path: str, length: int) -> Any:
    """Return the scope of a request of RSGI with a body, which waits to be asked for it."""
    scope = get("192.0.2.1", path)
    scope.method = "POST"
    scope.headers = {
        "authorization": f"Bearer {workspace}",
        "content-length": str(length),
        "expect": "100-continue",
    }
    return scope


def receive(reception: Reception, request: Dribble, length: int | None, limit: int) -> bytes:
    return asyncio.run(reception.receive(request, length, limit, "ours"))


@pytest.mark.parametrize("length", [None, 10, 10 * SMALL])
def test_a_body_has_a_deadline_however_long_it_is(length: int | None) -> None:
    with pytest.raises(Problem) as raised:
        receive(Reception(grace=0.01, rate=SMALL * 1000), Dribble(b"{"), length, MIB)
    assert raised.value.status == 408


def test_large_bodies_share_a_room_and_give_it_back() -> None:
    reception = Reception(room=6 * SMALL)
    large = b"x" * SMALL

    def bring(parts: int, sender: str = "ours") -> bytes:
        request = Dribble(*[large] * parts, ends=True)
        return asyncio.run(reception.receive(request, None, MIB, sender))

    first = bring(2)
    with pytest.raises(Problem) as raised:
        bring(2)
    assert (raised.value.status, raised.value.headers) == (503, {"Retry-After": "5"})
    assert receive(reception, Dribble(b"{}", ends=True), None, MIB) == b"{}"  # small ones go on
    theirs = bring(2, "theirs")  # of what one sender alone may not have
    reception.give_back(first, "ours")
    reception.give_back(theirs, "theirs")
    assert bring(3) == large * 3


def test_a_workspace_that_stops_sending_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "Reception", functools.partial(Reception, room=12 * SMALL))

    def app(environ: Any, start: Any) -> list[bytes]:
        try:
            environ["wsgi.input"].read()
        except Problem as problem:
            start(f"{problem.status} refused", [])
        else:
            start("200 OK", [])
        return []

    async def run() -> tuple[list[int], int]:
        there = make_front(
            app, limits={"/v1/metrics": MIB}, sender_of=lambda shown: shown.partition(" ")[2]
        )
        attackers = [Dribble(b"x" * (2 * SMALL - 1)) for _ in range(8)]
        under_way = [
            asyncio.create_task(there.__rsgi__(post("theirs", "/v1/metrics", 2 * SMALL), one))
            for one in attackers
        ]
        while not all(one.is_read or one.status for one in attackers):
            await asyncio.sleep(0)
        other = Dribble(b"x" * (2 * SMALL), ends=True)
        await there.__rsgi__(post("ours", "/v1/metrics", 2 * SMALL), other)
        for one in under_way:
            one.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await asyncio.to_thread(there.close)
        return [one.status for one in attackers], other.status

    refused, answered = asyncio.run(run())
    assert answered == 200
    assert 503 in refused


def test_what_came_early_buys_no_time_in_which_nothing_comes() -> None:
    async def run() -> None:
        reception = Reception(grace=0.01, rate=1)
        async with asyncio.timeout(PATIENCE):
            await reception.receive(Dribble(b"x" * 2 * SMALL), 3 * SMALL, MIB, "ours")

    with pytest.raises(Problem) as raised:
        asyncio.run(run())
    assert raised.value.status == 408


def test_what_breaks_off_is_not_taken_for_a_whole_body() -> None:
    reception = Reception()
    for request, length in (
        (Dribble(b"x" * SMALL, ends=True), 2 * SMALL),
        (Dribble(b"x", b"", b"", ends=True), None),  # as granian says it
    ):
        with pytest.raises(GoneError):
            receive(reception, request, length, MIB)


def test_what_is_read_slowly_holds_up_no_one(service: ServiceProcess, peers: ExitStack) -> None:
    token = service.token()
    for _ in range(40):
        peer = connect(service, peers)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
            peer.setblocking(False)
            peer.sendall(b"GET /static/vendor/uplot-1.6.32.min.js HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
    check_all_is_well(service, token)


@pytest.mark.parametrize("path", ["/sign-in", "/invitation"])
def test_forms_are_small(service: ServiceProcess, path: str) -> None:
    def send(data: bytes, kind: str = FORM) -> int:
        return requests.post(
            service.url + path,
            data=data,
            headers={"Content-Type": kind},
            timeout=PATIENCE,
            verify=service.verify,
            allow_redirects=False,
        ).status_code

    # It is not read on, so whoever goes on sending may find the connection closed instead.
    with contextlib.suppress(requests.ConnectionError):
        assert send(b"a=1&" * 1000_000) == 413
    assert send(b"a=" + b"x" * SMALL) == 413
    assert send(b"a=1&" * 2000) == 413  # small, and yet more than any form has
    assert send(b"--b--", "multipart/form-data; boundary=b") == 415
    assert send(b"a=1") not in (413, 415)


def test_many_large_forms_cost_no_memory(local_service: ServiceProcess) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("only Linux tells how much memory a process had")
    assert ask(local_service, "/sign-in").ok
    before = most_memory(local_service)
    form = b"a=1&" * (5 * MIB)
    for _ in range(4):
        for kind in (FORM, "multipart/form-data; boundary=b"):
            with contextlib.suppress(requests.ConnectionError):  # it need not take all of it
                answer = requests.post(
                    f"{local_service.url}/sign-in",
                    data=form,
                    headers={"Content-Type": kind},
                    timeout=PATIENCE,
                )
                assert answer.status_code == 413
    assert most_memory(local_service) < before + 50
