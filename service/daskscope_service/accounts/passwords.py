"""Passwords, and the slow hash that is stored of them.

A password can be guessed where a random secret cannot, so it must cost much to try one.
"""

from __future__ import annotations

import functools
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

#: Characters.
SHORTEST = 12
LONGEST = 1000

# Of the parameters that OWASP recommends, those that take the least memory (19 MiB): anyone may try
# to sign in, on all of the service's threads at once.
_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class UnfitPassword(ValueError):
    """A password that must not be used. The message says why, to follow the word "it"."""


def check(password: str, name: str) -> None:
    """Raise UnfitPassword if ``password`` is too weak for the user who signs in as ``name``."""
    if len(password) < SHORTEST:
        raise UnfitPassword(
            f"has {len(password)} characters and must have at least {SHORTEST}; a few "
            "unrelated words are easy to remember and hard to guess"
        )
    if len(password) > LONGEST:
        raise UnfitPassword(f"has {len(password)} characters and must have at most {LONGEST}")
    if not password.strip() or password.casefold().strip() in name.casefold():
        raise UnfitPassword("is part of the name, so it is easy to guess; choose another")


def hash_of(password: str) -> str:
    """Return what is stored in place of ``password``. Takes tens of milliseconds and 19 MiB."""
    return _hasher.hash(_bytes(password))


def fits(password: str, stored: str | None) -> bool:
    """Return whether ``stored`` was made of ``password``; no less slow if it is None, and False."""
    try:
        _hasher.verify(_of_nobody() if stored is None else stored, _bytes(password))
    except VerifyMismatchError:
        return False
    return stored is not None


def _bytes(password: str) -> bytes:
    # Keyboards differ in how they send an "ü".
    text = unicodedata.normalize("NFKC", password[:LONGEST])
    return text.encode("utf-8", "surrogatepass")


@functools.cache
def _of_nobody() -> str:
    return _hasher.hash(b"no one's")
