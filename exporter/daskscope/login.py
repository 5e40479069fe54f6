"""``daskscope login``: gets a token from the service, for the user who approves it.

It uses the device authorization grant of OAuth (RFC 8628): the user opens a page of the service in
any browser and approves the request, while this program polls.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from daskscope import config_file
from daskscope.config import settings
from daskscope.containment import contain
from daskscope.delivery import http_errors
from daskscope.delivery.http import Session, watched
from daskscope.errors import AccessDenied, ConfigurationError, ServiceError, ServiceUnreachable
from daskscope.one_line import one_line
from daskscope.version import __version__

#: The default scopes of a token: send data, and read it.
SCOPES = ("ingest", "read")

#: Seconds: to connect, and to wait for an answer.
_TIMEOUT = (5.0, 30.0)

#: Default seconds between two polls, and the most that the service may ask for.
_INTERVAL = 5.0
_LONGEST_INTERVAL = 60.0
_SLOWER = 5.0

#: The longest wait for the user's approval, in seconds.
_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Invitation:
    """What the user must do: open ``url`` and compare ``code``, within ``seconds``."""

    url: str
    code: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Login:
    """The result of a login. ``overruled``: another part of Dask's configuration has priority."""

    token_id: str
    workspace: str
    scopes: tuple[str, ...]
    file: Path
    overruled: bool


def log_in(
    url: str | None = None,
    *,
    show: Callable[[Invitation], None],
    scopes: Sequence[str] = SCOPES,
    sleep: Callable[[float], None] = time.sleep,
) -> Login:
    """Get a token and write it to a file in the user's folder of Dask's configuration.

    ``url`` is the service's address; None means the one in Dask's configuration. ``show`` is called
    with the instructions for the user. ``scopes`` are the requested scopes (ingest, read, admin);
    the token gets those that the user may grant.

    Raises
    ------
    ConfigurationError
        The address is invalid, or the file must not be replaced; checked before the user is asked.
    ServiceUnreachable
        The service does not answer.
    AccessDenied
        The request was denied, or nobody approved it in time.
    ServiceError
        The address is no daskscope service, or one without ``daskscope login``.
    """
    endpoint = settings(endpoint=url).endpoint
    config_file.own_file()

    with watched(Session(overdue=2 * sum(_TIMEOUT))) as session:
        session.headers["User-Agent"] = f"daskscope/{__version__}"
        begun = _begin(session, endpoint, scopes)
        invitation = Invitation(
            url=_page(begun, endpoint),
            code=one_line(str(begun["user_code"])),
            seconds=_bounded(begun["expires_in"], _SECONDS, most=_SECONDS),
        )
        show(invitation)
        granted = _poll(session, endpoint, begun, invitation.seconds, sleep)

    token = str(granted["access_token"])
    file = config_file.own_file()  # checked again: minutes have passed
    config_file.write(file, endpoint=endpoint, token=token)
    return Login(
        token_id=one_line(str(granted.get("token_id", ""))),
        workspace=one_line(str(granted.get("workspace", ""))),
        scopes=tuple(one_line(str(granted.get("scope", ""))).split()),
        file=file,
        overruled=(config_file.in_force("token"), config_file.in_force("endpoint"))
        != (token, endpoint),
    )


def open_browser(url: str) -> bool:
    """Open ``url`` in a graphical browser; return False if there is none."""
    # Without a display, a text browser would open in the terminal and hide the instructions.
    unix = sys.platform not in ("darwin", "win32", "cygwin")
    displays = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if unix and not any(os.environ.get(name) for name in displays):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def _begin(session: Session, endpoint: str, scopes: Sequence[str]) -> dict[str, Any]:
    form = {
        "client_id": "daskscope",
        "scope": " ".join(scopes),
        "host": socket.gethostname(),
    }
    response = _post(session, f"{endpoint}/api/v1/login/device", form)
    if response.status_code in (404, 405):
        raise ServiceError(
            f"{endpoint} does not support daskscope login: either it is older than this daskscope "
            f"{__version__}, or it is not a daskscope service. `daskscope token create` on its "
            "machine creates a token",
            response.status_code,
        )
    begun = _document(response)
    if not response.ok:
        raise ServiceError(
            f"{_reason(begun)} (HTTP {response.status_code} from {endpoint})",
            response.status_code,
        )
    if response.is_redirect or not {"device_code", "user_code", "expires_in"} <= set(begun):
        raise ServiceError(
            f"{endpoint} answered, but it is not a daskscope service", response.status_code
        )
    return begun


def _poll(
    session: Session,
    endpoint: str,
    begun: dict[str, Any],
    seconds: float,
    sleep: Callable[[float], None],
) -> dict[str, Any]:
    form = {
        "client_id": "daskscope",
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": str(begun["device_code"]),
    }
    interval = _bounded(begun.get("interval"), _INTERVAL)
    deadline = time.monotonic() + seconds
    away: ServiceUnreachable | None = None
    while (left := deadline - time.monotonic()) > 0:
        sleep(min(interval, left))
        try:
            response = _post(session, f"{endpoint}/api/v1/login/token", form)
        except ServiceUnreachable as error:
            # It may come back. Poll less and less often, as the RFC requires.
            away, interval = error, min(2 * interval, _LONGEST_INTERVAL)
            continue
        away = None
        answer = _document(response)
        refusal = answer.get("error")
        if response.ok and "access_token" in answer:
            return answer
        if refusal == "slow_down":
            interval = max(_bounded(answer.get("interval"), 0.0), interval + _SLOWER)
        elif refusal == "access_denied":
            raise AccessDenied("the login was denied; nothing changed", response.status_code)
        elif refusal == "expired_token":
            break
        elif refusal != "authorization_pending" and response.status_code not in (
            429,
            502,
            503,
            504,
        ):
            raise ServiceError(
                f"{_reason(answer)} (HTTP {response.status_code} from {endpoint})",
                response.status_code,
            )
    if away is not None:
        raise away
    raise AccessDenied("the login was not approved in time; run daskscope login again")


def _post(session: Session, url: str, form: dict[str, str]) -> requests.Response:
    try:
        return session.post(url, data=form, timeout=_TIMEOUT)
    except Exception as error:
        contain(error)
        _, why = http_errors.why(error, "--url, or daskscope.endpoint,")
        host = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        raise ServiceUnreachable(f"cannot reach the service at {host}: {why}") from None


def _document(response: requests.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _reason(problem: dict[str, Any]) -> str:
    return one_line(str(problem.get("detail", "no reason given"))[:1000])


def _page(begun: dict[str, Any], endpoint: str) -> str:
    url = str(begun.get("verification_uri_complete") or begun.get("verification_uri") or "")
    # A browser will open it and a terminal show it, so only a web address is acceptable.
    if not url.startswith(("https://", "http://")) or not url.isprintable():
        raise ConfigurationError(f"{endpoint} sent no address of a page to open")
    return url


def _bounded(value: Any, default: float, *, most: float = _LONGEST_INTERVAL) -> float:
    try:
        return min(max(0.0, float(value)), most)  # NaN becomes 0
    except (TypeError, ValueError, OverflowError):
        return default
