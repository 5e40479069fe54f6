"""A cache of tokens, so that most heartbeats need no query for their token."""

from __future__ import annotations

import time
from dataclasses import replace

from sqlalchemy import Engine

from daskscope_service.accounts import tokens
from daskscope_service.accounts.secret import hash_of
from daskscope_service.accounts.tokens import Token

#: The size of the cache; when it is full, it is emptied.
_REMEMBERED = 10_000


class TokenCache:
    """The tokens that requests of the last minute used. May be used from any thread.

    A token may have been revoked since: before acting on one, check :meth:`in_force`, or
    :func:`.tokens.in_force` for many at once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tokens: dict[bytes, tuple[float, Token]] = {}

    def find(self, text: str, now: float) -> Token | None:
        """Return the token with this text, as :func:`.tokens.find`, but up to a minute old."""
        token = self.recall(text, now)
        if token is not None:
            return token
        token = tokens.find(self._engine, text)
        if token is not None:
            if len(self._tokens) >= _REMEMBERED:
                self._tokens.clear()
            # This use is stored now, and not again while the token is in the cache.
            remembered = replace(token, last_used_at=now)
            self._tokens[hash_of(text)] = (now + tokens.USE_NOTED_EVERY, remembered)
        return token

    def recall(self, text: str, now: float) -> Token | None:
        """Return the token if it is in the cache and at most a minute old; else None."""
        cached = self._tokens.get(hash_of(text))
        return cached[1] if cached is not None and now < cached[0] else None

    def sender_of(self, authorization: str) -> str | None:
        """Return the workspace of the token in an ``Authorization`` header if it may send data."""
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        now = time.time()
        token = self.find(text.strip(), now)
        if token is None or token.state(now) != "active" or "ingest" not in token.scopes:
            return None
        return token.workspace

    def in_force(self, token: Token) -> bool:
        """Return whether the database still has the token, and it was not revoked."""
        with self._engine.connect() as connection:
            return tokens.in_force(connection, [token.id])
