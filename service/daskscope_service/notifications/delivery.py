"""The program that sends one message, in a process of its own.

``python -m daskscope_service.notifications.delivery`` reads a :class:`Message` as JSON and writes
an :class:`Attempt` as JSON. A user chooses the address, so it may lead anywhere. Therefore this
process is confined: it connects to allowed IP addresses only, whatever a name resolves to; reads
only code, certificates and a few system files; starts no programs; has little memory; and ends when
its time is over, even if the process that started it was killed.
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

from daskscope_service.notifications.addresses import is_allowed, is_public, opened, why_invalid

#: The most memory of the process in bytes, the host's answer included. A usual message takes a
#: third of it. Twelve such processes may run at once.
_MEMORY = 256 << 20

#: What the process may read besides Python code: certificates, host names, time zones.
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
    """The result of sending. ``status`` is the last HTTP status, None if there was no answer.

    ``unfit``: the address is not valid any more. ``reached``: a host accepted a connection.
    ``inner``: a host was not public.
    """

    result: Literal["sent", "not sent", "unfit"]
    status: int | None
    reached: bool
    inner: bool


class _Guard:
    """An audit hook that refuses all that sending does not need. Python cannot remove it."""

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
        # Names are refused, too: the system would resolve one again, perhaps to another address.
        if not internet or not is_allowed(host, self._networks):
            raise ConnectionRefusedError("an address that notifications may not use")

    def _may_read(self, path: str) -> bool:
        path = os.path.realpath(path)
        return any(path == one or path.startswith(f"{one}{os.sep}") for one in self._read)


def deliver(message: Message) -> Attempt:
    """Send a message. From then on, this process stays confined to that."""
    import apprise  # noqa: F401  # before the guard, which would refuse what the import does
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
    # Follow no redirects, whatever a library asks for: the address was chosen by an owner, but the
    # target of a redirect was not.
    requests.sessions.SessionRedirectMixin.get_redirect_target = (  # type: ignore[method-assign]
        lambda *_: None
    )
    # From here on, the host may be slow. The signal ends the process, whatever it is doing.
    signal.setitimer(signal.ITIMER_REAL, message["seconds"])
    guard = _Guard(message["networks"])
    sys.addaudithook(guard)
    target = opened(message["address"]) if why_invalid(message["address"]) is None else None
    if target is not None:
        sent = target.notify(body=message["text"], title=message["title"], body_format="text")
        outcome["result"] = "sent" if sent else "not sent"
    outcome["inner"] = guard.inner
    return outcome


def _aside(output: int) -> TextIO:
    """Return a stream to the file descriptor ``output``; discard what libraries write there."""
    stream = os.fdopen(os.dup(output), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return stream


def main() -> None:
    """Send the message on standard input."""
    message: Message = json.load(sys.stdin)
    with suppress(ValueError, OSError):  # not every system can limit it
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with _aside(1) as answer, _aside(2) as log:
        try:
            json.dump(deliver(message), answer)
            answer.flush()
            os._exit(0)  # skips the libraries' exit handlers, which may be slow
        except Exception as error:  # log it without its message, which may contain the address
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.write(f"{frames}{type(error).__name__}")
            sys.exit(1)


if __name__ == "__main__":
    main()
