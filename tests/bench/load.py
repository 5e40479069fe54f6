"""A load generator that leaves the processor to what it loads: one thread, ready-made requests.

It shares its machine with the service, so it does no more per request than to write bytes to a
socket, and to look for the end of the answer.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

#: Seconds without any answer after which the service is taken for dead.
_PATIENCE = 60.0


@dataclass(slots=True)
class Answers:
    """What came back: ``statuses`` counts answers, ``seconds`` is how long all of it took."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """Answers of success per second.

        Raises RuntimeError if there were others than those, and refusals for want of a place.
        """
        if self.statuses.keys() - {200, 429} or not self.statuses[200]:
            raise RuntimeError(f"requests were answered with {dict(self.statuses)}")
        return self.statuses[200] / self.seconds


def post(port: int, path: str, token: str, content_type: str, gzipped: bytes) -> bytes:
    """Return the bytes of a request with a body that is gzip already."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {content_type}\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(gzipped)}\r\n\r\n"
    )
    return head.encode() + gzipped


def drive(
    ports: Sequence[int], requests: Iterator[bytes], *, connections: int, seconds: float
) -> Answers:
    """Send ``requests`` over ``connections``, each with one on its way, for ``seconds`` at most.

    The connections are spread over ``ports``. All that was sent is waited for. What is answered
    with anything but 200 is counted, not sent again.
    """
    answers = Answers()
    with selectors.DefaultSelector() as selector:
        began = time.monotonic()
        try:
            for number in range(connections):
                request = next(requests, None)
                if request is None:
                    break
                peer = socket.create_connection(("127.0.0.1", ports[number % len(ports)]))
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(peer, selectors.EVENT_READ, bytearray())
                peer.sendall(request)
            _exchange(selector, requests, answers, began + seconds)
        finally:
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
        answers.seconds = time.monotonic() - began
    return answers


def _exchange(
    selector: selectors.BaseSelector, requests: Iterator[bytes], answers: Answers, end: float
) -> None:
    waiting = len(selector.get_map())
    while waiting:
        ready = selector.select(_PATIENCE)
        if not ready:
            raise RuntimeError("the service does not answer any more")
        ending = time.monotonic() >= end
        for key, _ in ready:
            peer: socket.socket = key.fileobj  # type: ignore[assignment]
            received: bytearray = key.data
            part = peer.recv(65536)
            if not part:
                raise RuntimeError(f"the service closed a connection after {bytes(received)!r}")
            received += part
            if not _is_whole(received):
                continue
            answers.statuses[int(received[9:12])] += 1
            received.clear()
            request = None if ending else next(requests, None)
            if request is not None:
                peer.sendall(request)
            else:
                selector.unregister(peer)
                peer.close()
                waiting -= 1


def _is_whole(received: bytearray) -> bool:
    head = received.find(b"\r\n\r\n")
    if head < 0:
        return False
    found = received.lower().find(b"content-length:", 0, head)
    end = received.find(b"\r\n", found)
    return len(received) >= head + 4 + int(received[found + 15 : end])
