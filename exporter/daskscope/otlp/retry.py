"""Decides when to send a batch again, and when to give it up.

The SDK's logging is suppressed, and it sends each batch once per call. A failed batch is retried
for some seconds, as the SDK would do. After that it stays queued and is retried later. A lost batch
is counted, and a warning is logged once per reason.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from daskscope.containment import contain
from daskscope.delivery.backoff import Backoff
from daskscope.delivery.warn_once import WarnOnce
from daskscope.otlp.environment import OTLPEnvironment, Signal
from daskscope.otlp.sdk_private import silence
from daskscope.otlp.transport import (
    SendResult,
    asked,
    content,
    is_answered,
    may_help,
    too_large,
    why,
)
from daskscope.scrubbing import Scrubber

#: Seconds after which a batch is given up, because others wait behind it or are dropped.
GIVE_UP_AFTER = 300.0
#: About how many seconds to wait before the first retry of a batch.
FIRST_PAUSE = 1.0

# By signal: the type of the answer, the field with the number of rejected items, and their name.
_ANSWERS: Mapping[Signal, tuple[Any, str, str]] = {
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points", "data point"),
    "traces": (ExportTraceServiceResponse, "rejected_spans", "span"),
    "logs": (ExportLogsServiceResponse, "rejected_log_records", "log record"),
}


class Delivery:
    """Sends the exporters' batches. Spans and log records that could not be sent are queued and
    sent again, within limits. Metrics are not queued: the next export is a total, or the increment
    since the last successful export, so nothing is lost.
    """

    def __init__(
        self,
        destination: OTLPEnvironment,
        interval: float,
        service_is_well: Callable[[], bool],
        drops: Counter[str],
    ) -> None:
        self._destination = destination
        self._service_is_well = service_is_well
        self._drops = drops
        self.failures: Counter[str] = Counter()
        # Each signal is sent in a thread of its own. ``_said`` is what the SDK last logged there.
        self._backoff = {signal: Backoff(interval) for signal in _ANSWERS}
        self._said: dict[Signal, str | None] = {}
        self._warn_once = WarnOnce()
        self._closing = threading.Event()
        self._gone: set[Signal] = set()
        self._process = os.getpid()

    def close(self) -> None:
        """Send waiting data only once from now on, without retries. From any thread."""
        self._closing.set()

    def give_up(self) -> None:
        """Stop sending, and count all waiting data as lost. From any thread."""
        self._gone.update(_ANSWERS)
        for session in tuple(self._destination.sessions.values()):
            session.give_up()

    def send_totals(self, export: Callable[[], Any]) -> bool:
        """Send metrics, except in a pause after a failure. Return whether they were accepted."""
        if self._is_a_copy() or "metrics" in self._gone:
            return False
        wanted = self._backoff["metrics"].is_over()
        return (wanted or self._closing.is_set()) and self._try("metrics", export)

    def send(
        self,
        signal: Signal,
        what: str,
        items: Sequence[Any],
        export: Callable[[Sequence[Any]], Any],
    ) -> bool:
        """Send items, with retries if these may help; count lost items as dropped ``what``."""
        if self._is_a_copy():
            return False
        given_up = time.monotonic() + GIVE_UP_AFTER
        while signal not in self._gone:
            self._closing.wait(self._backoff[signal].remaining())
            if self._try(signal, lambda: export(items)):
                return True
            if too_large(self._outcome(signal)) and len(items) > 1:
                self._backoff[signal].skip()
                half = len(items) // 2
                first = self.send(signal, what, items[:half], export)
                return self.send(signal, what, items[half:], export) and first
            if self._closing.is_set() or not may_help(self._outcome(signal)):
                break
            if time.monotonic() > given_up:
                break
        self._drops[what] += len(items)
        return False

    def _is_a_copy(self) -> bool:
        # The SDK starts its threads again in a forked process, which has no scheduler.
        return os.getpid() != self._process

    def _try(self, signal: Signal, export: Callable[[], Any]) -> bool:
        """Send, with retries until the signal's timeout. Return whether the data was accepted."""
        ends = time.monotonic() + self._destination.timeout(signal)
        closing = self._closing.is_set()
        between = Backoff(FIRST_PAUSE)
        while not self._send_once(signal, export):
            outcome = self._outcome(signal)
            wait = between.failed(asked(outcome))
            if closing or not may_help(outcome) or time.monotonic() + wait > ends:
                self._failed(signal, closing)
                return False
            # A close during the wait causes one last try at once.
            closing = self._closing.wait(wait)
        self._backoff[signal].succeeded()
        self._note_rejected(signal)
        return True

    def _send_once(self, signal: Signal, export: Callable[[], Any]) -> bool:
        """Send once, with the SDK's logging suppressed. Return whether the data was accepted."""
        session = self._destination.sessions.get(signal)
        if session is not None:
            session.outcome = None
        result: Any = None
        with silence() as sdk:
            try:
                result = export()
            except Exception as error:
                contain(error)
                # Its str, not its repr, because the repr of an OSError omits the file.
                sdk.last = f"{type(error).__name__}: {error}"
            self._said[signal] = sdk.last
        return getattr(result, "name", None) == "SUCCESS"

    def _failed(self, signal: Signal, closing: bool) -> None:
        self.failures[signal] += 1
        outcome = self._outcome(signal)
        if closing and not is_answered(outcome):
            # The user who closes the cluster should not wait for a timeout of each batch.
            self._gone.add(signal)
        self._backoff[signal].failed(asked(outcome))
        self._warn(signal, *why(outcome, self._said.get(signal) or "no answer"))

    def _note_rejected(self, signal: Signal) -> None:
        """Count rejected items of an accepted request, and warn of them."""
        answer, field, what = _ANSWERS[signal]
        try:
            partial = answer.FromString(content(self._outcome(signal))).partial_success
        except DecodeError:  # a success in text or JSON
            return
        rejected = getattr(partial, field)
        if rejected > 0:
            self._drops[f"rejected {what}"] += rejected
            said = Scrubber().scrub(partial.error_message or "it gives no reason", 300)
            self._warn(signal, "rejected", f"at least {rejected} {what}s rejected: {said}")

    def _outcome(self, signal: Signal) -> SendResult:
        """Return the result of the last request."""
        session = self._destination.sessions.get(signal)
        return None if session is None else session.outcome

    def _warn(self, signal: Signal, kind: str, reason: str) -> None:
        address = self._destination.address(signal)
        host = urlsplit(address).netloc or address
        if not (self._destination.is_elsewhere(signal) or self._service_is_well()):
            return
        self._warn_once(
            (host, kind),
            "daskscope: %s could not be sent over OTLP to %s (%s). The cluster runs on; %s. "
            "This is the only warning of its kind.",
            signal,
            address,
            reason,
            _then(signal, kind),
        )


def _then(signal: Signal, kind: str) -> str:
    """Describe what happens to data that could not be sent."""
    if kind == "rejected":
        return "they are left out and counted"
    if signal == "metrics":
        return "the next export sends the totals again"
    return "they are sent again if that may help, and counted if they are lost"
