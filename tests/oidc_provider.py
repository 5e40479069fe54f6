"""An OpenID Connect provider on loopback, by Authlib: it lets in whoever asks, and can misbehave.

``python -m tests.oidc_provider`` serves on a free port and prints it. ``POST /next`` says as JSON
who is let in from then on, and what is wrong with the answers.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import requests
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, Response, jsonify, request
from joserfc import jws
from joserfc.jwk import KeySet, OctKey, RSAKey

CLIENT_ID = "daskscope"
SECRET = "a secret of the provider's"


class Provider:
    """A provider in a process of its own. ``issuer`` is its address."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def next(
        self, *, wrong: str = "", answers: Mapping[str, Any] | None = None, **claims: Any
    ) -> None:
        """Let in who has ``claims``. ``wrong``: what the answers are not as they should be.

        ``answers``: by path, an answer instead of the provider's: its status, headers and body,
        compressed ``gzip`` times.
        """
        said = {"wrong": wrong, "claims": claims, "answers": answers or {}}
        requests.post(f"{self.issuer}/next", json=said, timeout=30).raise_for_status()

    def asked(self) -> list[str]:
        """Return the paths of all requests so far, those of a test left out."""
        return list(requests.get(f"{self.issuer}/asked", timeout=30).json())


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider that runs meanwhile."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.oidc_provider"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"AUTHLIB_INSECURE_TRANSPORT": "1"},  # on loopback alone
    )
    try:
        assert process.stdout is not None
        yield Provider(process.stdout.readline().strip())
    finally:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


class _Client(SimpleNamespace):
    client_id = CLIENT_ID

    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_default_redirect_uri(self) -> None:
        return None

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, uri: str) -> bool:
        return uri.endswith("/sign-in/openid/callback")

    def check_client_secret(self, secret: str) -> bool:
        return secret == SECRET

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, kind: str) -> bool:
        return kind == "code"

    def check_grant_type(self, kind: str) -> bool:
        return kind == "authorization_code"


class _Code(SimpleNamespace):
    def get_redirect_uri(self) -> str:
        return str(self.redirect_uri)

    def get_scope(self) -> str:
        return str(self.scope)

    def get_nonce(self) -> str:
        return str(self.nonce)

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


def make_app(issuer: str) -> Flask:
    """Return the provider that calls itself ``issuer``."""
    app = Flask("oidc_provider")
    app.config["OAUTH2_TOKEN_EXPIRES_IN"] = {"authorization_code": 3600}
    key, stranger = (
        RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"}) for _ in range(2)
    )
    codes: dict[str, _Code] = {}
    state: dict[str, Any] = {"wrong": "", "claims": {"sub": "1"}, "answers": {}}

    class Grant(AuthorizationCodeGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

        def save_authorization_code(self, code: str, asked: Any) -> None:
            payload = asked.payload
            codes[code] = _Code(
                code=code,
                redirect_uri=payload.redirect_uri,
                scope=payload.scope,
                nonce=payload.data.get("nonce"),
                code_challenge=payload.data.get("code_challenge"),
                code_challenge_method=payload.data.get("code_challenge_method"),
            )

        def query_authorization_code(self, code: str, _client: Any) -> _Code | None:
            return codes.get(code)

        def delete_authorization_code(self, found: _Code) -> None:
            del codes[found.code]

        def authenticate_user(self, _code: _Code) -> Any:
            return SimpleNamespace()

    class OpenID(OpenIDCode):  # type: ignore[misc]
        def exists_nonce(self, _nonce: str, _request: Any) -> bool:
            return False

        def encode_id_token(self, token: Any, asked: Any) -> str:
            wrong, now = state["wrong"], int(time.time())
            claims = {
                "iss": issuer if wrong != "issuer" else "https://elsewhere.example",
                "aud": CLIENT_ID if wrong != "audience" else "another",
                "iat": now + {"expiry": -7200, "future": 3600}.get(wrong, 0),
                "exp": now + {"expiry": -3600, "future": 7200}.get(wrong, 300),
                "nonce": asked.authorization_code.nonce if wrong != "nonce" else "another",
                **state["claims"],
            }
            if wrong.startswith("no "):
                del claims[wrong.removeprefix("no ")]
            header: dict[str, Any] = {"alg": "RS256", "kid": "1"}
            if wrong == "own key":
                header["jwk"] = stranger.as_dict(private=False)
            if wrong == "public key as a secret":
                shared = OctKey.import_key(key.as_pem(private=False))
                return jws.serialize_compact(
                    {"alg": "HS256", "kid": "1"}, json.dumps(claims).encode(), shared, ["HS256"]
                )
            of_a_stranger = wrong in ("signature", "own key")
            # Not jwt.encode(), which checks the claims.
            text = jws.serialize_compact(
                header, json.dumps(claims).encode(), stranger if of_a_stranger else key
            )
            if wrong == "algorithm":
                text = f"eyJhbGciOiJub25lIn0.{text.split('.')[1]}."
            return text

    server = AuthorizationServer(
        app, query_client=lambda _id: _Client(), save_token=lambda _token, _request: None
    )
    server.register_grant(Grant, [OpenID(require_nonce=True), CodeChallenge(required=True)])

    asked: list[str] = []

    @app.get("/asked")
    def all_asked() -> list[str]:
        return asked

    @app.before_request
    def instead() -> Response | None:
        if request.path not in ("/next", "/asked"):
            asked.append(request.path)
        answer = state["answers"].get(request.path)
        if answer is None:
            return None
        body = str(answer.get("body", "")).encode()
        for _ in range(answer.get("gzip", 0)):
            body = gzip.compress(body)
        return Response(body, answer.get("status", 200), answer.get("headers"))

    @app.get("/.well-known/openid-configuration")
    def discovery() -> dict[str, Any]:
        return {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "jwks_uri": f"{issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }

    @app.get("/keys")
    def keys() -> Any:
        return jsonify(KeySet([key]).as_dict(private=False))

    @app.get("/authorize")
    def authorize() -> Any:
        return server.create_authorization_response(
            grant=server.get_consent_grant(end_user=SimpleNamespace()),
            grant_user=SimpleNamespace(),
        )

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    @app.post("/next")
    def following() -> Response:
        state.update(request.get_json())
        return Response(status=204)

    return app


if __name__ == "__main__":
    from werkzeug.serving import make_server

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        issuer = f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving = make_server(
            "127.0.0.1", 0, make_app(issuer), threaded=True, fd=listening.fileno()
        )
        print(issuer, flush=True)
        serving.serve_forever()
