"""Password hashes at a hundredth of the cost: tests make hundreds, and one takes 0.1 s of a core.

A stored hash names its own parameters: everyone can check it, a service with the usual ones too.
"""

from __future__ import annotations

from argon2 import PasswordHasher

from daskscope_service.accounts import passwords


def use() -> None:
    """Hash passwords in this process with the least that Argon2 takes."""
    passwords._hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
