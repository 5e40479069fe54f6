"""Passwords, and the slow hash that is stored instead of them.

A password can be guessed, unlike a random secret, so each guess must be expensive.
"""

from __future__ import annotations

import functools
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

#: The lengths that a password may have, in characters.
SHORTEST = 12
LONGEST = 1000

# These are the recommended parameters of OWASP that need the least memory (19 MiB): anyone may try
# to sign in, on all of the service's threads at once.
_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class UnfitPassword(ValueError):
    """A password that cannot be used. The message gives the reason, to follow the word "it"."""


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
    """Return whether ``stored`` is the hash of ``password``.

    If it is None, return False, but take as long.
    """
    try:
        _hasher.verify(_of_nobody() if stored is None else stored, _bytes(password))
    except VerifyMismatchError:
        return False
    return stored is not None


def _bytes(password: str) -> bytes:
    # Some keyboards send an "ü" as one character, others as two.
    text = unicodedata.normalize("NFKC", password[:LONGEST])
    return text.encode("utf-8", "surrogatepass")


@functools.cache
def _of_nobody() -> str:
    return _hasher.hash(b"no one's")
