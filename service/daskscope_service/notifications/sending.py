"""Sends one message to one address, in a process with a time limit; and sends test messages.

Sending blocks the thread, for up to that time.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence

from daskscope_service.db.unreadable import Unreadable
from daskscope_service.notifications.addresses import why_invalid
from daskscope_service.notifications.delivery import Attempt, Message

#: The time limit of a message in seconds, whatever the host does; and how long its process may take
#: to start, on a busy machine.
SECONDS = 15.0
_START_SECONDS = 45.0

#: The variables that the sending process gets from the service's environment: it gets none of the
#: service's secrets.
_ENVIRONMENT = frozenset(
    (
        *("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    )
)

logger = logging.getLogger(__name__)


class NotSent(Exception):
    """A message was not sent. The error's text says why, without the address."""


class Sender:
    """Sends messages to hosts that are public or in ``networks``. It is thread-safe."""

    def __init__(self, networks: Sequence[str]) -> None:
        self.networks = tuple(networks)
        self._lock = threading.Lock()
        self._running = set[subprocess.Popen[bytes]]()
        self._closed = False

    def close(self) -> None:
        """Abort the messages that are being sent; they count as not sent. Refuse new ones."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def send(self, address: str, title: str, text: str) -> None:
        """Send a message. Raises NotSent."""
        if isinstance(address, Unreadable):
            raise NotSent(f"the address is {address}")
        wrong = why_invalid(address)
        if wrong is not None:
            raise NotSent(unfit(wrong))
        outcome = self._deliver(
            Message(
                address=address,
                title=title,
                text=text,
                networks=list(self.networks),
                seconds=SECONDS,
            )
        )
        if outcome["result"] != "sent":
            raise NotSent(reason(outcome))

    def _deliver(self, message: Message) -> Attempt:
        process = self._start()
        try:
            written, said = process.communicate(
                json.dumps(message).encode(), _START_SECONDS + SECONDS
            )
        except subprocess.TimeoutExpired:
            written, said = b"", b""
        finally:
            process.kill()
            process.wait()
            with self._lock:
                self._running.discard(process)
        try:
            outcome: Attempt = json.loads(written)
        except ValueError:
            if self._closed:
                raise NotSent("the service is stopping") from None
            if process.returncode > 0:  # it failed by itself; a signal at the time limit gives < 0
                logger.error("a notification failed: %s", said[-2000:].decode(errors="replace"))
                raise NotSent("the service could not send it; see its log") from None
            raise NotSent(f"it took longer than {SECONDS:.0f} s") from None
        return outcome

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            name: value for name, value in os.environ.items() if name.upper() in _ENVIRONMENT
        }
        with self._lock:
            if self._closed:
                raise NotSent("the service is stopping")
            process = subprocess.Popen(
                # -P: import nothing from the folder in which the service was started.
                [sys.executable, "-P", "-m", "daskscope_service.notifications.delivery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches only the service, which ends this process
            )
            self._running.add(process)
        return process


def unfit(wrong: str) -> str:
    """Return the failure for a stored address that is not allowed any more because of ``wrong``."""
    return f"{wrong} Remove this target, and add it again with a valid address"


def reason(outcome: Attempt) -> str:
    """Return why a message was not sent, for the owners of the workspace.

    For a host in a private network this gives no details: owners must not be able to find out what
    listens in the service's own networks.
    """
    if outcome["result"] == "unfit":
        return "the address is no longer valid"
    if outcome["inner"]:
        return (
            "it was not accepted. The host is not in a public network: the service connects to "
            "other networks only if DASKSCOPE_NOTIFY_NETWORKS lists them, and gives no more "
            "details about them"
        )
    status = outcome["status"]
    if status is not None and status >= 300:
        return f"the host refused it (HTTP {status})"
    if outcome["reached"]:
        return "the host accepted the connection, but not the message"
    return "no connection: the host is unknown, or does not answer"


class Busy(Exception):
    """Another test of this workspace is running, or too many tests of others are."""


class TestMessages:
    """Sends test messages by ``sender``. At most ``most`` run at once: each blocks a request."""

    def __init__(self, sender: Sender, most: int) -> None:
        self._sender = sender
        self._most = most
        self._lock = threading.Lock()
        self._under_way = set[str]()

    def run(self, workspace: str, address: str, actor: str) -> None:
        """Send a test message in the name of ``actor``.

        Raises
        ------
        Busy
            Other tests are running. Nothing was sent.
        NotSent
            The message was not sent.
        """
        with self._lock:
            if workspace in self._under_way or len(self._under_way) >= self._most:
                raise Busy
            self._under_way.add(workspace)
        try:
            self._sender.send(
                address, f"daskscope, {workspace}: a test", f"{actor} is testing this target."
            )
        finally:
            with self._lock:
                self._under_way.discard(workspace)
