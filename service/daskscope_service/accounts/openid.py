"""OpenID Connect: what is said to the provider, and what its answer must be like to count.

The authorization code flow with PKCE, by Authlib. Nothing of it knows users or the database.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

#: Signatures that are believed: those with a public key. Not "none", and none with a shared secret.
_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)

#: Seconds: for each request to the provider, by which its clock may be off, and for which what it
#: says of itself is kept.
_TIMEOUT = 10.0
_LEEWAY = 60
_KEPT = 600.0


class OpenIDError(Exception):
    """The provider cannot be used, or its answer does not count. The message says why."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who the provider says it was: ``subject`` is theirs for ever, all else may change."""

    subject: str
    email: str | None
    email_verified: bool
    name: str | None
    claims: Mapping[str, Any]


@dataclass
class Provider:
    """One provider, found by its ``issuer``. ``secret``: "" for a client that has none."""

    issuer: str
    client_id: str
    secret: str = field(repr=False)
    redirect_uri: str
    # What was asked of it lately, and when: any process asks again what it lacks.
    _document: dict[str, Any] = field(default_factory=dict, repr=False)
    _keys: KeySet | None = field(default=None, repr=False)
    _asked_at: float = 0.0

    def address(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the page of the provider to send the browser to.

        Raises
        ------
        OpenIDError
            The provider does not say where that is.
        """
        with self._session() as session:
            url, _ = session.create_authorization_url(
                self._endpoint("authorization_endpoint"),
                state=state,
                code_verifier=verifier,
                nonce=nonce,
            )
        return str(url)

    def redeem(self, code: str, *, nonce: str, verifier: str) -> Person:
        """Return who it was, for the code that the browser brought back.

        Raises
        ------
        OpenIDError
            The provider does not take the code, or what it says of the person cannot be believed.
        """
        try:
            with self._session() as session:
                answer = session.fetch_token(
                    self._endpoint("token_endpoint"), code=code, code_verifier=verifier
                )
        except OAuthError as error:
            raise OpenIDError(f"the provider refused the code: {error.error}") from None
        except (requests.RequestException, ValueError) as error:
            raise _unreachable(error) from None
        claims = self._claims(str(answer.get("id_token", "")), nonce, answer.get("access_token"))
        email = claims.get("email")
        name = claims.get("name") or claims.get("preferred_username")
        return Person(
            subject=str(claims["sub"]),
            email=email if isinstance(email, str) and "@" in email else None,
            email_verified=claims.get("email_verified") is True,
            name=name if isinstance(name, str) else None,
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
            claims.validate(leeway=_LEEWAY)
        except (JoseError, ValueError) as error:
            raise OpenIDError(f"the provider's answer does not count: {error}") from None
        return dict(claims)

    def _session(self) -> OAuth2Session:
        known = self._discovered().get("token_endpoint_auth_methods_supported")
        method = "client_secret_basic"
        if not self.secret:
            method = "none"
        elif known and method not in known and "client_secret_post" in known:
            method = "client_secret_post"
        return OAuth2Session(
            self.client_id,
            self.secret or None,
            token_endpoint_auth_method=method,
            scope="openid email profile",
            redirect_uri=self.redirect_uri,
            code_challenge_method="S256",
            default_timeout=_TIMEOUT,
        )

    def _endpoint(self, name: str) -> str:
        url = str(self._discovered().get(name, ""))
        if not is_safe(url):
            raise OpenIDError(f"the provider {self.issuer} names no {name} by HTTPS")
        return url

    def _discovered(self) -> dict[str, Any]:
        if self._document and time.monotonic() - self._asked_at < _KEPT:
            return self._document
        document = _get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != self.issuer:
            raise OpenIDError(
                f"what is at {self.issuer} calls itself {document.get('issuer')!r}; "
                "DASKSCOPE_OIDC_ISSUER must be the same to the letter"
            )
        self._document, self._keys, self._asked_at = document, None, time.monotonic()
        return document

    def _key_set(self, *, fresh: bool = False) -> KeySet:
        keys = self._keys
        if keys is None or fresh:
            keys = self._keys = KeySet.import_key_set(_get(self._endpoint("jwks_uri")))  # type: ignore[arg-type]
        return keys


def is_safe(url: str) -> bool:
    """Tell whether secrets may be sent to ``url``: by HTTPS, or to this machine."""
    parts = urlsplit(url)
    loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and loopback)
    )


def _get(url: str) -> dict[str, Any]:
    try:
        response = requests.get(url, timeout=_TIMEOUT)
        response.raise_for_status()
        document = response.json()
    except (requests.RequestException, ValueError) as error:
        raise _unreachable(error) from None
    if not isinstance(document, dict):
        raise OpenIDError(f"what is at {url} is no JSON object")
    return document


def _unreachable(error: Exception) -> OpenIDError:
    return OpenIDError(f"the provider does not answer as it should: {type(error).__name__}")
