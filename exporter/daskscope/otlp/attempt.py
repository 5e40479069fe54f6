"""One request of the SDK's, and what it came to."""

from __future__ import annotations

from typing import Any

import requests

from daskscope.delivery.http import Session


class Attempt(Session):
    """A session that the SDK sends with, once each time: it would try again inside, for seconds,
    and cannot be stopped without losing what else waits.

    ``outcome`` is what the last request came to. It ``presents`` a certificate or, whatever the SDK
    has found in the environment, it does not.
    """

    def __init__(self, overdue: float, *, presents: bool) -> None:
        super().__init__(overdue)
        self._presents = presents
        self.outcome: requests.Response | Exception | None = None
        self._given_up = False

    def give_up(self) -> None:
        """End the request that is under way, and send no more. From any thread."""
        self._given_up = True
        self.end()

    def merge_environment_settings(self, *args: Any) -> Any:
        """Return the settings of a request, the environment's among them."""
        merged = super().merge_environment_settings(*args)
        return merged if self._presents else {**merged, "cert": None}

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request. Whatever is wrong, the SDK gets an answer that it does not try again."""
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


def draw_no_pauses(exporter: Any) -> None:
    """Keep an exporter of the SDK from drawing the pause before a second try, which never comes.

    It draws one before each request, from :mod:`random`: a program that seeds it expects the
    numbers that come then. The SDK has no public way to it; releases that draw only after a failure
    go on to do so.
    """
    client: Any = getattr(exporter, "_client", None)
    if hasattr(client, "_compute_backoff"):
        client._compute_backoff = float


def _took(response: requests.Response) -> bool:
    """Return whether that is the answer of one who was sent OTLP, and took it.

    The SDK takes it for a success if it is sent elsewhere, or to a page.
    """
    taken = 200 <= response.status_code < 300
    return taken and not response.headers.get("Content-Type", "").startswith("text/html")
