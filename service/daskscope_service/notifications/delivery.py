"""The program that sends one message, in a process of its own.

``python -m daskscope_service.notifications.delivery`` reads a :class:`Message` as JSON and writes
an :class:`Attempt` as JSON. An address leads wherever its owner wants, so this process may connect
to allowed addresses alone, whatever resolved or redirected to them; reads no files but programs and
certificates; starts no programs; has little memory; and ends when its time is over, even if whoever
started it has been killed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any, Literal, TextIO, TypedDict

from daskscope_service.notifications.addresses import is_allowed, is_public, opened, wrong_with

#: Bytes of memory that a message may take, with all that the other side answers: three times what
#: one takes. Twelve messages may be on their way at once.
_MEMORY = 256 << 20

#: What a program reads besides itself: certificates, names of hosts, time zones.
_READ = ("/etc/ssl", "/etc/pki", "/etc/hosts", "/etc/resolv.conf", "/usr/share/zoneinfo")
_READ_BY = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Message(TypedDict):
    """A message to send within ``seconds``, to hosts that are public or in ``networks``."""

    address: str
    title: str
    text: str
    networks: list[str]
    seconds: float


class Attempt(TypedDict):
    """The result of sending. ``status`` is the last status of HTTP, None without one.

    ``reached``: a host accepted a connection. ``inner``: a host was not public.
    """

    result: Literal["sent", "not sent", "unfit"]
    status: int | None
    reached: bool
    inner: bool


class _Guard:
    """An audit hook: refuses what a message needs not. It cannot be removed."""

    def __init__(self, networks: list[str]) -> None:
        self.inner = False
        self._networks = networks
        folders = [sys.prefix, sys.base_prefix, *sys.path, *_READ, *map(os.environ.get, _READ_BY)]
        self._read = tuple(os.path.realpath(folder) for folder in folders if folder)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            self._check_address(args[0], args[1])
        elif event == "open" and isinstance(args[0], str | bytes):
            if not self._may_read(os.fsdecode(args[0])):
                raise FileNotFoundError(2, "not for notifications")
        elif event in ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork"):
            raise PermissionError("notifications start no programs")

    def _check_address(self, one: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        self.inner = self.inner or not is_public(host)
        internet = one.family in (socket.AF_INET, socket.AF_INET6)
        # A name would be resolved once more, perhaps to another address.
        if not internet or not is_allowed(host, self._networks):
            raise ConnectionRefusedError("an address that notifications may not use")

    def _may_read(self, path: str) -> bool:
        path = os.path.realpath(path)
        return any(path == one or path.startswith(f"{one}{os.sep}") for one in self._read)


def deliver(message: Message) -> Attempt:
    """Send a message, and confine this process to that for good."""
    import apprise  # noqa: F401  # before the guard: it looks at the machine
    import requests.adapters
    import requests.sessions

    outcome = Attempt(result="unfit", status=None, reached=False, inner=False)
    adapter = requests.adapters.HTTPAdapter
    send, connect = adapter.send, socket.socket.connect

    def send_noted(*args: Any, **kwargs: Any) -> requests.Response:
        response = send(*args, **kwargs)
        outcome["status"] = response.status_code
        return response

    def connect_noted(self: socket.socket, address: Any) -> None:
        connect(self, address)
        outcome["reached"] = True

    adapter.send = send_noted  # type: ignore[method-assign]
    socket.socket.connect = connect_noted  # type: ignore[assignment, method-assign]
    # Whatever a library thinks of redirects: where they lead is not the owner's to say.
    requests.sessions.SessionRedirectMixin.get_redirect_target = (  # type: ignore[method-assign]
        lambda *_: None
    )
    # From here on the other side may take time. The signal ends the process, whatever it does.
    signal.setitimer(signal.ITIMER_REAL, message["seconds"])
    guard = _Guard(message["networks"])
    sys.addaudithook(guard)
    target = opened(message["address"]) if wrong_with(message["address"]) is None else None
    if target is not None:
        sent = target.notify(body=message["text"], title=message["title"], body_format="text")
        outcome["result"] = "sent" if sent else "not sent"
    outcome["inner"] = guard.inner
    return outcome


def _aside(output: int) -> TextIO:
    """Return a stream to ``output``; what libraries print there goes nowhere from now on."""
    stream = os.fdopen(os.dup(output), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return stream


def main() -> None:
    """Send what standard input says."""
    message: Message = json.load(sys.stdin)
    with suppress(ValueError, OSError):  # not every system bounds it
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with _aside(1) as answer, _aside(2) as log:
        try:
            json.dump(deliver(message), answer)
            answer.flush()
            os._exit(0)  # what libraries do at the end may take its time
        except Exception as error:  # without its message, which might hold the address
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.write(f"{frames}{type(error).__name__}")
            sys.exit(1)


if __name__ == "__main__":
    main()
