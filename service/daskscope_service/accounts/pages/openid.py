"""Sign-in by OpenID Connect: sends browsers to the provider, and receives them afterwards."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flask import Blueprint, current_app, g, make_response, redirect, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts import access, openid_sign_in
from daskscope_service.accounts.login_rate_limit import TooManyAttempts
from daskscope_service.accounts.openid_answer import OpenIDError
from daskscope_service.accounts.openid_sign_in import NotLetIn
from daskscope_service.accounts.pages.account import begin_session, sign_in_page
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.problems import Problem

if TYPE_CHECKING:
    from daskscope_service.accounts.openid import Provider

blueprint = Blueprint("openid", __name__)

_COOKIE = "daskscope_openid"
_PATH = "/sign-in/openid"

#: The cookie's name if users come by HTTPS. Browsers accept a name with this prefix from this host
#: only, and for all of its paths. Otherwise another host of the domain could set the ticket of a
#: sign-in that it started.
_SECURE_COOKIE = f"__Host-{_COOKIE}"

logger = logging.getLogger(__name__)


def make_provider(settings: Settings) -> Provider | None:
    """Return the provider of ``settings``; None if they name none."""
    if not settings.oidc_issuer:
        return None
    from daskscope_service.accounts.openid import Provider

    return Provider(
        settings.oidc_issuer,
        settings.oidc_client_id,
        settings.oidc_client_secret,
        f"{settings.url}{_PATH}/callback",
        at_once=max(1, settings.threads // 2),  # keeps the other threads for other requests
    )


@blueprint.get(_PATH)
def begin() -> ResponseReturnValue:
    """Send the browser to the provider."""
    target = access.safe_next(request.args.get("next"))
    if not _is_meant():
        return sign_in_page(target, 403, "Another site sent you here. Sign in here if you want to.")
    return _away(target, user_id=None, again="again" in request.args)


@blueprint.get("/account/openid")
@access.as_user
def connect() -> ResponseReturnValue:
    """Send the browser to the provider, to connect the user's account with an account there."""
    if not _is_meant():
        raise Problem(403, "This request came from another site, so it was refused.")
    # From then on, whoever signs in at that account of the provider can sign in as this user.
    access.check_fresh()
    return _away("/account", user_id=g.session.user)


@blueprint.get(f"{_PATH}/callback")
def finish() -> ResponseReturnValue:
    """Finish the sign-in of a browser that comes back from the provider."""
    if "error" in request.args:
        return _failed("The provider did not let you in. Try again, or sign in another way.")
    issuer = request.args.get("iss")
    provider = _provider()
    session = access.current_session()
    try:
        if issuer is not None and issuer != provider.issuer:  # RFC 9207
            raise OpenIDError("the answer comes from another provider")
        returned = openid_sign_in.finish(
            services().engine,
            provider,
            current_app.config["SETTINGS"],
            state=request.args.get("state", ""),
            ticket=request.cookies.get(_cookie()[0], ""),
            code=request.args.get("code", ""),
            user_id=None if session is None else session.user,
            address=request.remote_addr or "",
            agent=request.headers.get("User-Agent", ""),
        )
    except OpenIDError as error:
        logger.warning("sign-in by OpenID Connect failed: %s", error)
        return _failed("This sign-in failed or expired. Try again.")
    except NotLetIn as error:
        return _failed(str(error))
    return _without_ticket(begin_session(returned.session_id, returned.target))


def _is_meant() -> bool:
    """Return whether the user came from this site or typed the address.

    It returns False if another site sent the browser here, or embedded the address, for example as
    an image. A POST form cannot replace this check: our Content-Security-Policy (form-action) does
    not allow the answer to a form to redirect to another site.
    """
    headers = request.headers  # browsers from before 2023 do not send them
    return (
        headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none")
        and headers.get("Sec-Fetch-Dest", "document") == "document"
    )


def _away(target: str, *, user_id: str | None, again: bool = False) -> ResponseReturnValue:
    try:
        begun = openid_sign_in.begin(
            services().engine,
            _provider(),
            target=target,
            address=request.remote_addr or "",
            user_id=user_id,
            again=again,
        )
    except OpenIDError as error:
        logger.warning("sign-in by OpenID Connect failed: %s", error)
        return _failed("The provider cannot be reached. Try again, or sign in another way.", 502)
    except TooManyAttempts as error:
        raise Problem(
            429,
            f"Too many sign-ins from your address are waiting. Try again in {error.seconds} s.",
            headers={"Retry-After": str(error.seconds)},
        ) from None
    response = make_response(redirect(begun.url, code=303))
    name, path, secure = _cookie()
    response.set_cookie(
        name,
        begun.ticket,
        max_age=round(openid_sign_in.SECONDS),
        path=path,
        httponly=True,
        samesite="Lax",  # browsers send it when the provider redirects back
        secure=secure,
    )
    return response


def _failed(wrong: str, status: int = 403) -> ResponseReturnValue:
    return _without_ticket(sign_in_page("/", status, wrong))


def _without_ticket(answer: ResponseReturnValue) -> ResponseReturnValue:
    response = make_response(answer)
    name, path, secure = _cookie()
    # A name with the prefix __Host- requires these attributes, also to delete the cookie.
    response.delete_cookie(name, path=path, secure=secure, httponly=True, samesite="Lax")
    return response


def _cookie() -> tuple[str, str, bool]:
    """Return the name of the ticket's cookie, its path, and whether it is sent by HTTPS only."""
    settings: Settings = current_app.config["SETTINGS"]
    return (_SECURE_COOKIE, "/", True) if settings.secure else (_COOKIE, _PATH, False)


def _provider() -> Provider:
    provider = services().openid
    if provider is None:
        raise Problem(404, "This service has no OpenID Connect provider.", title="Not found")
    return provider
