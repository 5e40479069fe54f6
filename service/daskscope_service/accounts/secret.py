"""Random secrets and how they are stored: only as their hash.

A secret has 256 random bits, so nobody can guess it from a stolen hash. Therefore a fast hash is
enough, where a password needs a slow one.
"""

from __future__ import annotations

import hashlib
import secrets

#: Hex digits of a secret.
LENGTH = 64


def new_secret() -> str:
    """Return a fresh secret: 256 random bits as hex digits."""
    return secrets.token_hex(LENGTH // 2)


def hash_of(secret: str) -> bytes:
    """Return what is stored in place of ``secret``."""
    return hashlib.sha256(secret.encode()).digest()
