"""Explains why a heartbeat was not delivered, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

import requests

from daskscope import protocol
from daskscope.delivery import http_errors
from daskscope.delivery.http import proxy_in_clear
from daskscope.one_line import one_line
from daskscope.version import __version__

#: HTTP statuses after which sending the same data again is pointless.
NEVER = (400, 413, 415, 422)
#: The invalid field in an answer to a heartbeat of an unsupported version.
VERSION = "$.protocol"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something was not delivered. ``text`` includes what to do, ``then`` the data's fate."""

    kind: str
    text: str
    then: str = "the data is stored and sent again"


def refused(endpoint: str, response: requests.Response) -> Problem:
    """Return why the service's answer does not acknowledge a heartbeat."""
    status, detail = response.status_code, _detail(response)
    service = f"the service at {endpoint}"
    proxy = proxy_in_clear(endpoint)
    if proxy is not None:
        service += f", or the proxy {proxy} in front of it (see HTTP_PROXY and NO_PROXY),"
    if status in (401, 403):
        text = (
            f"{service} refuses the token ({detail}); make one with "
            "`daskscope token create` and set daskscope.token or DASK_DASKSCOPE__TOKEN"
        )
    elif status == 413:
        text = (
            f"{service} rejects every heartbeat as too large, even small ones (413, "
            f"{detail}); is there a proxy in between? It must accept bodies of "
            f"{protocol.MAX_BEAT_BYTES >> 20} MiB"
        )
    elif status in NEVER and (field := _field(response)) not in (None, VERSION):
        return Problem(
            "refused part",
            f"{service} refuses one part of a heartbeat, {field} ({status}, {detail})",
            then="that part is dropped and counted as a refused row, and the rest is sent",
        )
    elif status in NEVER:
        text = (
            f"{service} does not support this version of daskscope, {__version__} ({detail}); "
            "install the same version on both sides"
        )
    elif response.is_redirect:
        text = (
            f"{endpoint} redirects to another address; set daskscope.endpoint to the address "
            "of the service"
        )
    elif response.ok:
        text = f"{endpoint} answers, but is not a daskscope service; check daskscope.endpoint"
    else:
        text = f"{service} answered {status} ({detail}); see the service's log"
    return Problem(str(status), text)


def corrected(correction: protocol.Correction) -> str:
    """Describe what the service did with a part of a heartbeat that was invalid."""
    done = "left out" if correction.left_out else "stored the nearest valid value for"
    return one_line(f"{done} {correction.field}: {correction.why}")


def unreachable(endpoint: str, error: Exception) -> Problem:
    """Return why there was no answer."""
    kind, why = http_errors.why(error)
    return Problem(kind, f"cannot reach the service at {endpoint}: {why}")


def unexpected(endpoint: str, error: Exception) -> Problem:
    """Return the problem for an unexpected error."""
    return Problem(
        "internal",
        f"sending to {endpoint} failed with {type(error).__name__}. This is a bug in "
        f"daskscope {__version__}; please report it, and say what runs at that address",
    )


def _field(response: requests.Response) -> str | None:
    """Return the invalid field of a heartbeat, a JSON path, if a problem document names it."""
    try:
        field = response.json().get("field")
    except (ValueError, AttributeError, RecursionError):
        return None
    return one_line(field[: protocol.MAX_NAME]) if isinstance(field, str) and field else None


def _detail(response: requests.Response) -> str:
    """Return the text of a problem document or, without one, the status."""
    try:
        problem = response.json()
        return one_line(str(problem.get("detail") or problem.get("title"))[:300])
    except (ValueError, AttributeError, RecursionError):
        return f"HTTP {response.status_code}"
