"""OpenID Connect: requests to the provider, and the checks of its answers.

The authorization code flow with PKCE, by Authlib. Nothing of it knows users or the database. It is
imported only where a provider is set: Authlib and joserfc take a sixth of a process's start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
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
from urllib3.exceptions import HTTPError

from daskscope_service.accounts.openid_answer import LEEWAY, OpenIDError, Person

#: Signatures that are believed: those with a public key. Not "none", and none with a shared secret.
_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)

#: Seconds: for each request to the provider; for which it is asked nothing after one without an
#: answer; and for which what it says of itself is kept.
_TIMEOUT = 2.0
_PAUSE = 30.0
_KEPT = 600.0
#: Bytes of an answer that are read, and at a time.
_MOST_BYTES, _CHUNK = 1 << 20, 1 << 16

T = TypeVar("T")


@dataclass
class Provider:
    """One provider, found by its ``issuer``. ``secret``: "" for a client that has none."""

    issuer: str
    client_id: str
    secret: str = field(repr=False)
    redirect_uri: str
    #: How many sign-ins may wait for its answers at the same time.
    at_once: int = 4
    # What was asked of it lately, and when: any process asks again what it lacks.
    _document: dict[str, Any] = field(default_factory=dict, repr=False)
    _keys: KeySet | None = field(default=None, repr=False)
    _asked_at: float = 0.0
    _pause_until: float = 0.0

    def __post_init__(self) -> None:
        self._places = threading.BoundedSemaphore(self.at_once)
        self._requests = threading.BoundedSemaphore(self.at_once)
        self._fetching = threading.Lock()

    def address(self, *, state: str, nonce: str, verifier: str, again: bool = False) -> str:
        """Return the page of the provider to send the browser to.

        ``again``: it asks for proof of identity even if the user is signed in there, and says when
        it has done so. Whoever sits at the browser can take that out of the address again.

        Raises
        ------
        OpenIDError
            The provider does not say where that is.
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
        """Return who it was, for the code that the browser brought back.

        Raises
        ------
        OpenIDError
            The provider does not take the code, or what it says of the person cannot be believed.
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
            subject=str(claims["sub"]),
            email=email if isinstance(email, str) and "@" in email else None,
            email_verified=claims.get("email_verified") is True,
            name=name if isinstance(name, str) else None,
            proved_at=proved_at if type(proved_at) in (int, float) else None,
            claims=claims,
        )

    def _claims(self, text: str, nonce: str, access_token: Any) -> dict[str, Any]:
        try:
            try:
                token = jwt.decode(text, self._key_set(), _ALGORITHMS)
            except (JoseError, ValueError):
                # The provider may have changed its keys since they were asked for.
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
        except (JoseError, ValueError) as error:
            raise OpenIDError(f"the provider's answer is not valid: {error}") from None
        return dict(claims)

    def _session(self) -> OAuth2Session:
        known = self._discovered().get("token_endpoint_auth_methods_supported")
        method = "client_secret_basic"
        if not self.secret:
            method = "none"
        elif known and method not in known and "client_secret_post" in known:
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
        with self._fetching:  # one at a time; the others then find its result, or the pause
            if self._is_known():
                return self._document
            document = self._ask(
                lambda: _get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            )
            if document.get("issuer") != self.issuer:
                raise OpenIDError(
                    f"the provider at {self.issuer} reports the issuer "
                    f"{document.get('issuer')!r}; DASKSCOPE_OIDC_ISSUER must be exactly the "
                    "same"
                )
            self._document, self._keys, self._asked_at = document, None, time.monotonic()
            return document

    def _is_known(self) -> bool:
        return bool(self._document) and time.monotonic() - self._asked_at < _KEPT

    def _key_set(self, *, fresh: bool = False) -> KeySet:
        keys = self._keys
        if keys is None or fresh:
            url = self._endpoint("jwks_uri")
            keys = self._keys = KeySet.import_key_set(self._ask(lambda: _get(url)))  # type: ignore[arg-type]
        return keys

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Take a place among those who wait for the provider, if there is one."""
        if not self._places.acquire(blocking=False):
            raise OpenIDError("too many sign-ins are already waiting for the provider")
        try:
            yield
        finally:
            self._places.release()

    def _ask(self, request: Callable[[], T]) -> T:
        """Return what a request to the provider comes to, within the time that there is for it.

        One that takes longer goes on in its thread, and its answer counts no more.
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
            # One that answers, even with an error, is asked again: whoever makes up a code that it
            # cannot cope with must not keep everybody else from signing in.
            answered = isinstance(error, ValueError) or getattr(error, "response", None) is not None
            if not answered:
                self._pause_until = time.monotonic() + _PAUSE
            raise _unreachable(error) from None
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise _unreachable(error) from None  # what it said is of another kind than expected


def is_safe(url: str) -> bool:
    """Return whether secrets may be sent to ``url``: by HTTPS, or to this machine."""
    parts = urlsplit(url)
    loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and loopback)
    )


class _Bounded(HTTPAdapter):
    """Takes no more of an answer than there is room and time for, however it comes."""

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Return the whole answer. Raises ``requests.RequestException``."""
        until = time.monotonic() + _TIMEOUT
        response = super().send(request, *args, **kwargs)
        body = bytearray()
        try:
            # A read returns what there is, and unpacks no more than it was asked for.
            while chunk := response.raw.read1(_CHUNK, decode_content=True):
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise requests.exceptions.ContentDecodingError("the answer is too large")
                if time.monotonic() > until:
                    raise requests.ReadTimeout("the answer takes too long")
        except HTTPError as error:  # urllib3's, which requests has a name of its own for
            raise requests.ConnectionError(str(error)) from None
        finally:
            response.close()
        response._content = bytes(body)
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
    return OpenIDError(f"the provider's answer is not valid: {type(error).__name__}")
