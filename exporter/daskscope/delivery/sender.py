"""Sends heartbeats until the service acknowledges them, and warns once if it does not."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

import requests

from daskscope import codec, protocol
from daskscope.config import Settings
from daskscope.containment import contain
from daskscope.delivery.backoff import Backoff
from daskscope.delivery.http import MAX_ASKED, BackgroundSession, asked_to_wait
from daskscope.delivery.problems import NEVER, Problem, corrected, refused, unexpected, unreachable
from daskscope.delivery.queue import DeliveryQueue
from daskscope.delivery.spool import Spool, directory
from daskscope.delivery.spool_worker import SpoolWorker, body_of
from daskscope.delivery.warn_once import WarnOnce
from daskscope.privacy import Cleared
from daskscope.version import __version__

logger = logging.getLogger("daskscope")

#: Seconds: to connect, and to wait for an answer.
TIMEOUT = (3.0, 10.0)
#: The longest answer that is read, in bytes. Those of a service have some hundreds, or some tens of
#: thousands if it wants much code. While one is parsed, no other thread runs.
MAX_REPLY = 512 << 10
#: Commands of one answer that are executed. A cluster gets one or two, and the service repeats
#: them.
MAX_COMMANDS = 20
#: The smallest share of the usual number of rows to which refused heartbeats are reduced.
SMALLEST_SHARE = 0.01
#: The share of the first heartbeat after a failure: it may fail as well.
PROBING_SHARE = 0.05
#: Timeouts of the last heartbeat, in seconds: the user who closes the cluster is waiting.
LAST_TIMEOUT = (1.0, 2.0)

# The start of the monotonic clock by the wall clock, so that later changes of the wall clock have
# no effect.
_STARTED_AT = time.time() - time.monotonic()


class Sender:
    """Sends filtered snapshots to the service. :meth:`send` runs in a thread of its own.

    ``first_answer`` is set once the first heartbeat was accepted or has failed. ``problem`` says
    what is wrong and what to do; it is None while all is well. ``obey`` is called with the commands
    of the service's answers, in the sending thread. Undelivered data goes to ``spool_worker``,
    which the owner must close. With ``otlp.only`` nothing is sent.
    """

    def __init__(
        self,
        settings: Settings,
        drops: Counter[str],
        obey: Callable[[tuple[protocol.Command, ...]], None] = lambda commands: None,
    ) -> None:
        self._settings = settings
        self._drops = drops
        self._obey = obey
        # Protects data in memory. Never held during a request or a file operation, which may hang.
        self._lock = threading.Lock()
        # Sequence numbers must exceed those of an earlier plugin on the same scheduler.
        self._pending = DeliveryQueue(int((_STARTED_AT + time.monotonic()) * 1000), drops)
        spool = Spool(
            None if settings.otlp_only else directory(settings.spool_directory),
            endpoint=settings.endpoint,
            token=settings.token,
            max_bytes=settings.spool_max_bytes,
            drops=drops,
        )
        self.spool_worker = SpoolWorker(spool, self._pending, self._lock, drops)
        self._session = BackgroundSession(2 * sum(TIMEOUT), MAX_REPLY)
        self._session.headers.update(
            {
                "Authorization": f"Bearer {settings.token}",
                "Content-Type": "application/json",
                "Content-Encoding": "gzip",
                "User-Agent": f"daskscope/{__version__}",
            }
        )
        self._unheard = False
        self._given_up = False
        self._drops_reported: dict[str, int] | None = None
        self._look_for_others = True
        self._backoff = Backoff(settings.interval)
        # Whether no retry has followed the last failure.
        self._retry_waits = False
        self._share = 1.0
        self._warn_once = WarnOnce()
        self.failures: Counter[str] = Counter()
        self.first_answer = threading.Event()
        if settings.otlp_only:
            self.first_answer.set()
        self.problem: str | None = None
        self.url: str | None = None
        self.interval_wanted = 0.0

    # --- from any thread --------------------------------------------------------------------------

    def add(self, snapshot: Cleared) -> None:
        """Add a snapshot to send. Never waits for the service."""
        if self._settings.otlp_only:
            return
        with self._lock:
            self._pending.add(snapshot)
            self._unheard = True

    def tell_drops(self) -> bool:
        """Schedule a report of drops since the last heartbeat. Return whether to send it now."""
        with self._lock:
            if self._drops_reported in (None, dict(self._drops)):
                return False
            self._unheard = True
        if self.is_well():
            return True
        self.spool_worker.keep()
        return False

    def is_due(self) -> bool:
        """Return, once after each failure, whether to retry before the next heartbeat."""
        if not self._retry_waits or not self._backoff.is_over():
            return False
        self._retry_waits = False
        self._unheard = True
        return True

    def is_well(self) -> bool:
        """Return whether the service accepted the last heartbeat."""
        return self.first_answer.is_set() and self.problem is None

    def waiting(self) -> int:
        """Return how many rows have not been acknowledged."""
        return len(self._pending)

    def end_overdue(self) -> None:
        """End a request that takes too long, and warn if a disk takes too long."""
        self._session.end_overdue()
        self.spool_worker.warn_if_overdue()

    def give_up(self) -> None:
        """End the current request, and send no other: there is no time left."""
        self._given_up = True
        self._session.end()

    # --- from the thread that sends ---------------------------------------------------------------

    def send(self, _: object = None) -> None:
        """Send all waiting data; data that cannot be sent now waits for the next call."""
        if self._given_up or not self._unheard:
            return  # it was sent with an earlier call, or stays queued
        delivered = self._pending.ended or self._backoff.is_over()
        try:
            if delivered:
                delivered = self._deliver_all()
            if delivered:
                self._deliver_spool()
        except Exception as error:  # unacknowledged data must not be lost
            contain(error, self._drops)
            delivered = self._failed(unexpected(self._settings.endpoint, error))
        if not delivered:
            self.spool_worker.keep()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _deliver_all(self) -> bool:
        """Deliver all waiting data. Return whether all of it was delivered."""
        while True:
            with self._lock:
                self._unheard = False
                beat = self._pending.beat(time.time(), self._share)
                self._drops_reported = beat.drops
            if not self._deliver(beat):
                return False
            if not self._pending.rows_wait():
                return True

    def _deliver_spool(self) -> None:
        """Deliver the data in the spool, until there is new data to send."""
        self.spool_worker.clear()
        if self._look_for_others:
            self._look_for_others = False
            self.spool_worker.claim()
        while not self._unheard and not self._pending.ended:
            body = self.spool_worker.next()
            if body is None or not self._deliver_spooled(body):
                return

    def _deliver_spooled(self, body: bytes) -> bool:
        response = self._post(body)
        if isinstance(response, Problem):
            return self._failed(response)
        if response.status_code in NEVER:
            self._drops["refused beat"] += 1
        elif not response.ok or _reply(response, Counter()) is None:
            return self._refused(response)
        # Commands in that answer are for a cluster that has ended.
        self.spool_worker.taken()
        return True

    def _deliver(self, beat: protocol.Heartbeat) -> bool:
        """Send one heartbeat. Return whether to continue with the next at once."""
        response = self._post(body_of(beat))
        if isinstance(response, Problem):
            return self._failed(response)
        reply = _reply(response, self._drops)
        if reply is not None:
            with self._lock:
                self._pending.acknowledge(beat, reply.code_wanted)
            self._delivered(reply)
            if reply.commands:
                self._obey(reply.commands[:MAX_COMMANDS])
            return True
        if response.status_code in NEVER:
            if self._share > SMALLEST_SHARE and self._pending.rows_wait():
                # It is too large, or one row is invalid: smaller heartbeats lose fewer valid rows.
                self._share /= 4
                return True
            # Sending it again would fail again, and would block all that follows.
            with self._lock:
                self._pending.refuse(beat)
        return self._refused(response)

    def _post(self, body: bytes) -> requests.Response | Problem:
        """Return the service's answer, or the reason why there is none."""
        endpoint = self._settings.endpoint
        try:
            response: requests.Response = self._session.post(
                f"{endpoint}/api/v1/heartbeats",
                data=body,
                timeout=LAST_TIMEOUT if self._pending.ended else TIMEOUT,
                allow_redirects=False,  # the token is for this address only
            )
        except Exception as error:  # nothing was delivered
            contain(error)
            return unreachable(endpoint, error)
        return response

    def _refused(self, response: requests.Response) -> bool:
        problem = refused(self._settings.endpoint, response)
        return self._failed(problem, asked_to_wait(response))

    def _delivered(self, reply: protocol.Reply) -> None:
        if self.problem is not None:
            logger.info("daskscope: sending to %s works again", self._settings.endpoint)
        self.problem = None
        self._backoff.succeeded()
        self._retry_waits = False
        self._share = min(2 * self._share, 1.0)
        self._tell_corrections(reply)
        self.url = reply.url
        self.interval_wanted = min(reply.interval, MAX_ASKED)
        self.first_answer.set()

    def _tell_corrections(self, reply: protocol.Reply) -> None:
        if reply.rows_left_out:
            self._drops["refused row"] += reply.rows_left_out
        if reply.corrections:
            self._warn_once(
                "correction",
                "daskscope: the service at %s %s. The rest is stored. "
                "This is the only warning of its kind.",
                self._settings.endpoint,
                corrected(reply.corrections[0]),
            )

    def _failed(self, problem: Problem, asked: float = 0.0) -> bool:
        self.failures["heartbeats"] += 1
        self._share = min(self._share, PROBING_SHARE)
        # Other schedulers may end while the service is unreachable, and leave data.
        self._look_for_others = True
        self._backoff.failed(asked)
        self._retry_waits = True
        self._warn_once(
            problem.kind,
            "daskscope: %s%s The cluster runs on; %s. This is the only warning of its kind.",
            problem.text,
            "" if problem.text.endswith("?") else ".",
            problem.then,
        )
        self.problem = problem.text
        self.first_answer.set()
        return False


def _reply(response: requests.Response, drops: Counter[str]) -> protocol.Reply | None:
    if not response.ok:
        return None
    try:
        return codec.decode_reply(response.content, drops)
    except ValueError:
        return None
