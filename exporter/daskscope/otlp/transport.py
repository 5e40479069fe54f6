"""Sends a batch over HTTP, and interprets the results of HTTP and gRPC.

:mod:`.grpc_transport` sends over gRPC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests

from daskscope.delivery.http import BackgroundSession, asked_to_wait
from daskscope.delivery.http_errors import kind_of
from daskscope.scrubbing import Scrubber


@dataclass(frozen=True)
class GrpcStatus:
    """The result of a call over gRPC.

    ``code`` is the name of gRPC's code. ``wait`` is the number of seconds after which the server
    accepts the same request again, if it says so; ``content`` is its answer, if it accepted it.
    """

    code: str
    details: str = ""
    wait: float | None = None
    content: bytes = b""


#: The result of sending a batch; None if it is not known.
SendResult = requests.Response | Exception | GrpcStatus | None

# gRPC codes after which the OTLP specification requires a retry. RESOURCE_EXHAUSTED is one only if
# the server says how long to wait.
_TRANSIENT = (
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNAVAILABLE",
    "DATA_LOSS",
)
# Codes that gRPC itself sets if there is no answer. A collector may also answer with them.
_UNANSWERED = ("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE")
# gRPC's texts for a too large message in Go, C++ and Python; in Java; in Rust. It has no code for
# it.
_LARGER = re.compile(r"larger than max|exceeds maximum|too large", re.IGNORECASE)

# Part of gRPC's text for a certificate that is not trusted, or not valid now.
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"

_HINTS: Mapping[str | int, str] = {
    "tls": "its TLS certificate is not trusted: {}; see OTEL_EXPORTER_OTLP_CERTIFICATE",
    "proxy": "{}; see HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
    401: "{}; see OTEL_EXPORTER_OTLP_HEADERS",
    403: "{}; see OTEL_EXPORTER_OTLP_HEADERS",
    "UNAUTHENTICATED": "{}; see OTEL_EXPORTER_OTLP_HEADERS",
    "PERMISSION_DENIED": "{}; see OTEL_EXPORTER_OTLP_HEADERS",
    _UNTRUSTED: "{}; see OTEL_EXPORTER_OTLP_CERTIFICATE",
}


class HttpTransport(BackgroundSession):
    """A session with which the SDK sends each batch only once.

    The SDK itself would retry for seconds, and could not be stopped without losing the batches
    behind. ``outcome`` is the result of the last request. Without ``presents``, no client
    certificate is sent, even if the SDK has found one in the environment.
    """

    def __init__(self, overdue: float, *, presents: bool) -> None:
        super().__init__(overdue)
        self._presents = presents
        self.outcome: requests.Response | Exception | None = None
        self._given_up = False

    def give_up(self) -> None:
        """End the current request, and send no more. From any thread."""
        self._given_up = True
        self.end()

    def merge_environment_settings(self, *args: Any) -> Any:
        """Return the settings of a request, including those of the environment."""
        merged = super().merge_environment_settings(*args)
        return merged if self._presents else {**merged, "cert": None}

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request. On a failure the SDK gets an answer after which it does not retry."""
        try:
            if self._given_up:
                raise requests.ReadTimeout
            response = super().send(request, **kwargs)
        except OSError as error:
            self.outcome = error
        else:
            self.outcome = response
            if _took(response):
                return response
        refused = requests.Response()
        refused.status_code = 400
        return refused


def _took(response: requests.Response) -> bool:
    """Return whether a response means that an OTLP server has accepted the data.

    The SDK also takes redirects and web pages for a success.
    """
    taken = 200 <= response.status_code < 300
    return taken and not response.headers.get("Content-Type", "").startswith("text/html")


def content(outcome: SendResult) -> bytes:
    """Return the server's answer to a batch that it accepted, encoded; empty without one."""
    return outcome.content if isinstance(outcome, requests.Response | GrpcStatus) else b""


def is_answered(outcome: SendResult) -> bool:
    """Return whether the server has answered."""
    if isinstance(outcome, GrpcStatus):
        return outcome.code not in _UNANSWERED
    return isinstance(outcome, requests.Response)


def too_large(outcome: SendResult) -> bool:
    """Return whether the batch was too large, so that a part of it may be accepted."""
    if isinstance(outcome, GrpcStatus):
        exceeds = outcome.code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE")
        return exceeds and _LARGER.search(outcome.details) is not None
    return isinstance(outcome, requests.Response) and outcome.status_code == 413


def may_help(outcome: SendResult) -> bool:
    """Return whether to retry the same batch, by the OTLP specification."""
    if isinstance(outcome, Exception):
        return kind_of(outcome)[0] not in ("header", "file", "answer")
    if isinstance(outcome, GrpcStatus):
        exhausted = outcome.code == "RESOURCE_EXHAUSTED" and outcome.wait is not None
        return (outcome.code in _TRANSIENT or exhausted) and not too_large(outcome)
    return outcome is not None and outcome.status_code in (408, 429, 502, 503, 504)


def asked(outcome: SendResult) -> float:
    """Return how many seconds the server asks to wait."""
    if isinstance(outcome, GrpcStatus):
        return outcome.wait or 0.0
    return asked_to_wait(outcome) if isinstance(outcome, requests.Response) else 0.0


def why(outcome: SendResult, otherwise: str) -> tuple[str, str]:
    """Return why a batch was not accepted: a kind, and a text for people.

    ``otherwise`` is the SDK's message, which is used if there is no result.
    """
    if isinstance(outcome, Exception):
        kind, words = kind_of(outcome)
        return kind, _HINTS.get(kind, "{}").format(words)
    if isinstance(outcome, GrpcStatus):
        # gRPC has a single code for all failures to connect.
        code = _UNTRUSTED if _UNTRUSTED in outcome.details else outcome.code
        words = Scrubber().scrub(f"{outcome.code}: {outcome.details}", 300)
        return code, _HINTS.get(code, "{}").format(words)
    if outcome is None:
        return "sdk", Scrubber().scrub(otherwise, 300)
    if 300 <= outcome.status_code < 400:
        return "elsewhere", (
            f"{outcome.status_code}: it redirects to another address; see "
            "OTEL_EXPORTER_OTLP_ENDPOINT"
        )
    if outcome.ok:
        return "page", "it answers with a web page; see OTEL_EXPORTER_OTLP_ENDPOINT"
    status = outcome.status_code
    return str(status), _HINTS.get(status, "{}").format(f"{status} {outcome.reason}")
