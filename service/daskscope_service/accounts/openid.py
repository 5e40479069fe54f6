"""OpenID Connect: requests to the provider, and the checks of its answers.

This is the authorization code flow with PKCE, by Authlib. It knows neither users nor the database.
It is imported only if a provider is configured: Authlib and joserfc take a sixth of the time that a
process needs to start.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from daskscope_service.accounts.openid_answer import LEEWAY, OpenIDError, Person

#: Accepted signatures: those with a public key. Not "none", and none with a shared secret.
_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)

#: Seconds: the timeout of each request to the provider; the pause after a request that was not
#: answered; and how long the provider's discovery document is kept.
_TIMEOUT = 2.0
_PAUSE = 30.0
_KEPT = 600.0
#: Bytes: the longest answer that is read, and the size of one read.
_MOST_BYTES, _CHUNK = 1 << 20, 1 << 16

#: Characters of the longest subject that a provider may give to a person, by the standard.
_LONGEST_SUBJECT = 255

#: What Authlib, joserfc and the JSON decoder raise for answers whose parts have odd types.
_ODD = (ValueError, TypeError, AttributeError, LookupError, RecursionError)

T = TypeVar("T")


@dataclass
class Provider:
    """A provider, known by its ``issuer``. ``secret`` is "" for a client that has none."""

    issuer: str
    client_id: str
    secret: str = field(repr=False)
    redirect_uri: str
    #: How many sign-ins may wait for the provider's answers at the same time.
    at_once: int = 4
    # Answers of the provider, and when they came. Each process has its own.
    _document: dict[str, Any] = field(default_factory=dict, repr=False)
    _keys: KeySet | None = field(default=None, repr=False)
    _asked_at: float = 0.0
    _pause_until: float = 0.0

    def __post_init__(self) -> None:
        self._places = threading.BoundedSemaphore(self.at_once)
        self._requests = threading.BoundedSemaphore(self.at_once)
        self._fetching = threading.Lock()

    def address(self, *, state: str, nonce: str, verifier: str, again: bool = False) -> str:
        """Return the provider's page to send the browser to.

        ``again``: ask the provider to check the user's identity even if they are signed in there,
        and to report when it did. The person at the browser can remove this from the address.

        Raises
        ------
        OpenIDError
            The provider does not announce that page.
        """
        with nullcontext() if self._is_known() else self._place(), self._session() as session:
            url, _ = session.create_authorization_url(
                self._endpoint("authorization_endpoint"),
                state=state,
                code_verifier=verifier,
                nonce=nonce,
                **({"prompt": "login", "max_age": "0"} if again else {}),
            )
        return str(url)

    def redeem(self, code: str, *, nonce: str, verifier: str) -> Person:
        """Return the person who signed in, for the code that the browser brought back.

        Raises
        ------
        OpenIDError
            The provider refuses the code, or its statement about the person is not valid.
        """
        with self._place(), self._session() as session:
            url = self._endpoint("token_endpoint")
            answer = self._ask(lambda: session.fetch_token(url, code=code, code_verifier=verifier))
            claims = self._claims(
                str(answer.get("id_token", "")), nonce, answer.get("access_token")
            )
        email = claims.get("email")
        name = claims.get("name") or claims.get("preferred_username")
        proved_at = claims.get("auth_time")
        return Person(
            subject=_subject(claims["sub"]),
            email=email if isinstance(email, str) and "@" in email and _fits(email) else None,
            email_verified=claims.get("email_verified") is True,
            name=name if isinstance(name, str) else None,
            proved_at=proved_at if type(proved_at) in (int, float) else None,
            claims=claims,
        )

    def _claims(self, text: str, nonce: str, access_token: Any) -> dict[str, Any]:
        try:
            try:
                token = jwt.decode(text, self._key_set(), _ALGORITHMS)
            except (JoseError, *_ODD):
                # The provider may have changed its keys since they were fetched.
                token = jwt.decode(text, self._key_set(fresh=True), _ALGORITHMS)
            claims = CodeIDToken(
                token.claims,
                token.header,
                {
                    "iss": {"essential": True, "value": self.issuer},
                    "aud": {"essential": True, "value": self.client_id},
                    "sub": {"essential": True},
                },
                {"nonce": nonce, "client_id": self.client_id, "access_token": access_token},
            )
            claims.validate(leeway=LEEWAY)
        except (JoseError, *_ODD) as error:
            raise OpenIDError(f"the provider's answer is not valid: {error}") from None
        return dict(claims)

    def _session(self) -> OAuth2Session:
        known = self._discovered().get("token_endpoint_auth_methods_supported")
        method = "client_secret_basic"
        if not self.secret:
            method = "none"
        elif isinstance(known, list) and method not in known and "client_secret_post" in known:
            method = "client_secret_post"
        session = OAuth2Session(
            self.client_id,
            self.secret or None,
            token_endpoint_auth_method=method,
            scope="openid email profile",
            redirect_uri=self.redirect_uri,
            code_challenge_method="S256",
            default_timeout=_TIMEOUT,
        )
        return _bound(session)

    def _endpoint(self, name: str) -> str:
        url = str(self._discovered().get(name, ""))
        if not is_safe(url):
            raise OpenIDError(
                f"the provider {self.issuer} announces no {name} with an HTTPS address"
            )
        return url

    def _discovered(self) -> dict[str, Any]:
        if self._is_known():
            return self._document
        with self._fetching:  # one at a time; the others use its result
            if self._is_known():
                return self._document
            document = self._ask(
                lambda: _get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            )
            if document.get("issuer") != self.issuer:
                raise OpenIDError(
                    f"DASKSCOPE_OIDC_ISSUER is {self.issuer}; the provider there reports another "
                    f"issuer, which must be exactly the same: {document.get('issuer')!r}"
                )
            self._document, self._keys, self._asked_at = document, None, time.monotonic()
            return document

    def _is_known(self) -> bool:
        return bool(self._document) and time.monotonic() - self._asked_at < _KEPT

    def _key_set(self, *, fresh: bool = False) -> KeySet:
        keys = self._keys
        if keys is None or fresh:
            url = self._endpoint("jwks_uri")
            keys = self._keys = self._ask(lambda: KeySet.import_key_set(_get(url)))  # type: ignore[arg-type]
        return keys

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Take one of the places of sign-ins that wait for the provider; raise if none is free."""
        if not self._places.acquire(blocking=False):
            raise OpenIDError("too many sign-ins are already waiting for the provider")
        try:
            yield
        finally:
            self._places.release()

    def _ask(self, request: Callable[[], T]) -> T:
        """Return the result of a request to the provider, which has ``_TIMEOUT`` seconds to answer.

        A slower request goes on in its thread, and its answer is ignored.
        """
        if time.monotonic() < self._pause_until:
            raise OpenIDError("the provider did not answer a moment ago")
        if not self._requests.acquire(blocking=False):
            raise OpenIDError("too many requests to the provider are already under way")
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                answer.set_result(request())
            except Exception as error:
                answer.set_exception(error)
            finally:
                self._requests.release()

        threading.Thread(target=ask, name="daskscope-openid", daemon=True).start()
        try:
            return answer.result(_TIMEOUT)
        except OAuthError as error:
            raise OpenIDError(f"the provider refused the code: {error.error}") from None
        except (TimeoutError, requests.RequestException) as error:
            # Do not pause if the provider answers, even with an error: otherwise anyone could keep
            # everybody else from signing in, with an invented code that the provider fails on.
            answered = isinstance(error, ValueError) or getattr(error, "response", None) is not None
            if not answered:
                self._pause_until = time.monotonic() + _PAUSE
            raise (_invalid(error) if answered else _unreachable(error)) from None
        except _ODD as error:
            raise _invalid(error) from None


def is_safe(url: str) -> bool:
    """Return whether secrets may be sent to ``url``: by HTTPS, or to this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
    return (
        bool(parts.hostname)
        and url.isprintable()
        and (parts.scheme == "https" or (parts.scheme == "http" and loopback))
    )


def _fits(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_SUBJECT and text.isprintable()


def _subject(claim: Any) -> str:
    # Text only: the number 7 and the text "7" would otherwise be the same person.
    if not isinstance(claim, str) or not _fits(claim):
        raise OpenIDError(
            "the provider's answer is not valid: its subject (sub) is not a text of 1 to "
            f"{_LONGEST_SUBJECT} printable characters"
        )
    return claim


class _Connection(HTTPConnection):
    """Waits for the head of an answer for ``_TIMEOUT`` seconds, however it drips in."""

    _is_late = False

    def getresponse(self) -> Any:
        """Return the answer, whose body is still to be read. Raises OSError after the time."""
        timer = threading.Timer(_TIMEOUT, self._break_off)
        timer.name, timer.daemon = "daskscope-openid", True
        timer.start()
        try:
            response = super().getresponse()
        finally:
            timer.cancel()
        if self._is_late:  # what came of the head was taken for all of it
            raise TimeoutError("the answer takes too long")
        return response

    def _break_off(self) -> None:
        self._is_late = True
        if self.sock is not None:
            with suppress(OSError):  # it has ended meanwhile
                self.sock.shutdown(socket.SHUT_RDWR)


class _SecureConnection(_Connection, HTTPSConnection):
    """The same by HTTPS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _Bounded(HTTPAdapter):
    """Reads an answer of at most ``_MOST_BYTES``, for about ``_TIMEOUT`` seconds at most.

    It follows no redirect: the code and the client's secret are for the provider alone, and no
    answer of the provider's may lead the service to addresses of its own network.
    """

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make connections that break off."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Return the answer with its whole body. Raises ``requests.RequestException``."""
        until = time.monotonic() + _TIMEOUT
        response = super().send(request, *args, **kwargs)
        body = bytearray()
        try:
            # Each read returns the bytes that have arrived, and unpacks no more than it was asked
            # for.
            while chunk := response.raw.read1(_CHUNK, decode_content=True):
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise requests.exceptions.ContentDecodingError("the answer is too large")
                if time.monotonic() > until:
                    raise requests.ReadTimeout("the answer takes too long")
        except HTTPError as error:  # of urllib3; callers catch those of requests
            raise requests.ConnectionError(str(error)) from None
        finally:
            response.close()
        response._content = bytes(body)
        if response.is_redirect:
            raise requests.TooManyRedirects("the answer is a redirect", response=response)
        return response


def _bound(session: Any) -> Any:
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Bounded())
    return session


def _get(url: str) -> dict[str, Any]:
    with _bound(requests.Session()) as session:
        response = session.get(url, timeout=_TIMEOUT)
    response.raise_for_status()
    document = response.json()
    if not isinstance(document, dict):
        raise OpenIDError(f"the answer of {url} is not a JSON object")
    return document


def _unreachable(error: Exception) -> OpenIDError:
    return OpenIDError(f"the provider did not answer: {type(error).__name__}")


def _invalid(error: Exception) -> OpenIDError:
    return OpenIDError(f"the provider's answer is not valid: {type(error).__name__}")
