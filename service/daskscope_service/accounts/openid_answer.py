"""The result of asking an OpenID Connect provider: a person, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class OpenIDError(Exception):
    """The provider cannot be used, or its answer does not count. The message says why."""


@dataclass(frozen=True, slots=True)
class Person:
    """The person that the provider names: ``subject`` never changes, everything else may."""

    subject: str
    email: str | None
    email_verified: bool
    name: str | None
    claims: Mapping[str, Any]
