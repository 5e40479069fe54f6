"""Heartbeats: sent until they are acknowledged, with one warning when they are not."""

from __future__ import annotations

import gzip
import logging
import random
import threading
import time
from collections import Counter

import requests

from daskscope import protocol
from daskscope.config import Settings
from daskscope.privacy import Cleared
from daskscope.report.pending import Pending
from daskscope.version import __version__

logger = logging.getLogger("daskscope")

#: Seconds: to connect, to wait for an answer, and the longest pause between two tries.
TIMEOUT = (3.0, 10.0)
MAX_PAUSE = 30.0
#: The smallest share of the usual number of rows that a beat is cut down to when it is refused.
SMALLEST_SHARE = 0.01
#: Seconds that the last beat may take: whoever closes a cluster is waiting.
LAST_TIMEOUT = (1.0, 2.0)


class Sender:
    """Sends cleared snapshots to the service. Runs in a thread of its own.

    ``first_answer`` is set once it is known whether the first beat was taken; ``problem`` says
    what is wrong and what to do, or is None while all is well.
    """

    def __init__(self, settings: Settings, drops: Counter[str]) -> None:
        self._settings = settings
        # A plugin that is registered anew on the same scheduler must count on above the last one.
        self._pending = Pending(int(time.time() * 1000), drops)
        self._session = requests.Session()
        self._session.headers.update(
            {
                "Authorization": f"Bearer {settings.token}",
                "Content-Type": "application/json",
                "Content-Encoding": "gzip",
                "User-Agent": f"daskscope/{__version__}",
            }
        )
        self._not_before = 0.0
        self._share = 1.0
        self._failed_in_a_row = 0
        self.failures: Counter[str] = Counter()
        self.first_answer = threading.Event()
        self.problem: str | None = None
        self.url: str | None = None
        self.interval_wanted = 0.0

    def send(self, snapshot: Cleared) -> None:
        """Send ``snapshot`` and whatever waits; what cannot be sent now waits for the next call."""
        self._pending.add(snapshot)
        last = snapshot.phase == "stop"
        if time.monotonic() < self._not_before and not last:
            return
        while True:
            beat = self._pending.beat(time.time(), self._share)
            if not self._deliver(beat, LAST_TIMEOUT if last else TIMEOUT):
                break
            if not self._pending.rows_wait():
                break

    def is_well(self) -> bool:
        """Return whether the service took the last beat."""
        return self.first_answer.is_set() and self.problem is None

    def close(self) -> None:
        """Let go of connections."""
        self._session.close()

    def _deliver(self, beat: protocol.Heartbeat, timeout: tuple[float, float]) -> bool:
        """Send one beat. Return whether to go on with the next at once."""
        try:
            response = self._session.post(
                f"{self._settings.endpoint}/api/v1/heartbeats",
                data=gzip.compress(protocol.encode(beat), 5),
                timeout=timeout,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            return self._failed(_unreachable(self._settings.endpoint, error))
        if response.ok:
            try:
                reply = protocol.decode_reply(response.content)
            except ValueError:
                return self._failed(
                    f"{self._settings.endpoint} answers, but is not a daskscope service; "
                    "check daskscope.endpoint"
                )
            self._pending.acknowledge(beat, reply.code_wanted)
            self._delivered(reply)
            return True
        return self._refused(beat, response)

    def _refused(self, beat: protocol.Heartbeat, response: requests.Response) -> bool:
        status = response.status_code
        detail = _detail(response)
        never = status in (400, 413, 415, 422)
        if never and self._share > SMALLEST_SHARE and self._pending.rows_wait():
            # Too large, or one row among many is at fault: the fewer go along, the fewer are lost.
            self._share /= 4
            return True
        if status in (401, 403):
            return self._failed(
                f"the service at {self._settings.endpoint} refuses the token ({detail}); make one "
                "with `daskscope token create` and set daskscope.token or DASK_DASKSCOPE__TOKEN"
            )
        if never:
            # Sending it again would change nothing, and would keep all that follows waiting.
            self._pending.refuse(beat)
            return self._failed(
                f"the service at {self._settings.endpoint} does not understand this version of "
                f"daskscope, {__version__} ({detail}); install the same version on both sides"
            )
        pause = _retry_after(response)
        return self._failed(
            f"the service at {self._settings.endpoint} answered {status} ({detail}); "
            "its own log says why",
            pause,
        )

    def _delivered(self, reply: protocol.Reply) -> None:
        if self.problem is not None:
            logger.info("daskscope: delivering to %s again", self._settings.endpoint)
        self.problem = None
        self._failed_in_a_row = 0
        self._not_before = 0.0
        self._share = min(2 * self._share, 1.0)
        self.url = reply.url
        self.interval_wanted = reply.interval
        self.first_answer.set()

    def _failed(self, problem: str, pause: float = 0.0) -> bool:
        self.failures["heartbeats"] += 1
        self._failed_in_a_row += 1
        doubled = self._settings.interval * 2 ** min(self._failed_in_a_row - 1, 10)
        # Spread, so that a fleet does not come back all at once.
        pause = max(pause, min(doubled, MAX_PAUSE) * random.uniform(0.5, 1.0))  # noqa: S311
        self._not_before = time.monotonic() + pause
        if self.problem is None:
            logger.warning(
                "daskscope: %s. The cluster runs on; what was seen is kept and sent again. "
                "This is the only warning.",
                problem,
            )
        self.problem = problem
        self.first_answer.set()
        return False


def _unreachable(endpoint: str, error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        why = "its TLS certificate is not trusted; name your authority in REQUESTS_CA_BUNDLE"
    elif isinstance(error, requests.Timeout):
        why = "no answer in time; is the address right, and the service well?"
    else:
        why = "no connection; does it run (`daskscope serve`), and is daskscope.endpoint right?"
    return f"cannot reach the service at {endpoint}: {why}"


def _detail(response: requests.Response) -> str:
    """Return what a problem document says, or the bare status."""
    try:
        problem = response.json()
        return str(problem.get("detail") or problem.get("title"))[:300]
    except (ValueError, AttributeError):
        return f"HTTP {response.status_code}"


def _retry_after(response: requests.Response) -> float:
    try:
        return min(float(response.headers.get("Retry-After", 0)), MAX_PAUSE)
    except ValueError:
        return 0.0
