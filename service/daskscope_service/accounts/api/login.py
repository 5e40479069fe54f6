"""The endpoints of ``daskscope login``: one answers with a code, one with the token (RFC 8628).

Requests are forms and answers are JSON, as the RFC requires. Errors are problem documents with the
RFC's ``error`` as a member.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, cast

from flask import Blueprint, Response, current_app, jsonify, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts import device_login
from daskscope_service.accounts.device_login import NoToken
from daskscope_service.accounts.login_rate_limit import TooManyAttempts
from daskscope_service.accounts.tokens import SCOPES, USUAL, Scope, id_of
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.operation import JSON, Operation, describes
from daskscope_service.web.problems import Problem

blueprint = Blueprint("login", __name__, url_prefix="/api/v1/login")

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_FORM = "application/x-www-form-urlencoded"


class LoginRequest(TypedDict, total=False):
    """A program on ``host`` that wants a token.

    ``scope`` lists ingest, read and admin, separated by spaces; the default is ``ingest read``.
    """

    client_id: str
    scope: str
    host: str


class LoginCodes(TypedDict):
    """What to poll with, and what to show to the user; durations in seconds."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class TokenPoll(TypedDict):
    """A poll for the token. ``grant_type`` is the one that RFC 8628 defines."""

    grant_type: Literal["urn:ietf:params:oauth:grant-type:device_code"]
    device_code: str


class LoginToken(TypedDict):
    """The token, shown only this once."""

    access_token: str
    token_type: str
    scope: str
    token_id: str
    workspace: str


_WORDS = {
    "authorization_pending": "Nobody has allowed it yet; ask again after the interval.",
    "slow_down": "Too soon; wait longer between polls from now on.",
    "access_denied": "The request was denied, or the user who allowed it has lost the right to.",
    "expired_token": "This code is unknown, expired or used already; start again.",
}


@blueprint.post("/device")
@describes(Operation({JSON: LoginCodes}, body={_FORM: LoginRequest}, problems=(429, 503)))
def begin() -> ResponseReturnValue:
    """Answer with a code to poll with, and with one that the user compares."""
    asked = tuple(request.form.get("scope", " ".join(USUAL)).split())
    if not asked or not set(asked) <= set(SCOPES):
        raise Problem(
            400,
            f"The scope is {' '.join(asked)!r}; it may contain {', '.join(SCOPES)}.",
            error="invalid_scope",
        )
    try:
        begun = device_login.begin(
            services().engine,
            host=request.form.get("host", ""),
            scopes=cast("tuple[Scope, ...]", asked),
            address=request.remote_addr or "",
        )
    except TooManyAttempts as error:
        raise Problem(
            429,
            f"{device_login.FROM_ADDRESS} logins from your address are waiting to be allowed. "
            f"Try again in {error.seconds} s.",
            headers={"Retry-After": str(error.seconds)},
        ) from None
    settings: Settings = current_app.config["SETTINGS"]
    page = f"{settings.url}/activate"
    return _secret(
        {
            "device_code": begun.code,
            "user_code": begun.user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?code={begun.user_code}",
            "expires_in": round(device_login.SECONDS),
            "interval": round(device_login.INTERVAL),
        }
    )


@blueprint.post("/token")
@describes(Operation({JSON: LoginToken}, body={_FORM: TokenPoll}, problems=(503,)))
def collect() -> ResponseReturnValue:
    """Answer with the token, once a user has allowed the login."""
    grant = request.form.get("grant_type", "")
    if grant and grant != _GRANT:
        raise _refusal(
            "unsupported_grant_type",
            f"The grant_type is {grant[:100]!r}; the only supported one is {_GRANT}.",
        )
    missing = [name for name in ("grant_type", "device_code") if not request.form.get(name)]
    if missing:
        raise _refusal(
            "invalid_request",
            f"The form lacks {' and '.join(missing)}; grant_type must be {_GRANT}.",
        )
    try:
        token, workspace, scopes = device_login.collect(
            services().engine, request.form.get("device_code", "")
        )
    except NoToken as error:
        raise _refusal(error.error, _WORDS[error.error], interval=round(error.interval)) from None
    return _secret(
        {
            "access_token": token,
            "token_type": "Bearer",
            "scope": " ".join(scopes),
            "token_id": id_of(token),
            "workspace": workspace,
        }
    )


def _refusal(error: str, words: str, interval: int | None = None) -> Problem:
    # Clients of RFC 8628 read the member ``error``. No cache may store the answer.
    members: dict[str, Any] = {} if interval is None else {"interval": interval}
    return Problem(400, words, error=error, headers={"Cache-Control": "no-store"}, **members)


def _secret(answer: dict[str, object]) -> Response:
    response = jsonify(answer)
    response.headers["Cache-Control"] = "no-store"
    return response
