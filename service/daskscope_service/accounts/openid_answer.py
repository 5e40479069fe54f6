"""The result of asking an OpenID Connect provider: a person, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daskscope.one_line import one_line

#: Seconds by which the provider's clock may be off.
LEEWAY = 60


#: Characters of the provider's that are quoted in a message.
_QUOTED = 250


class OpenIDError(Exception):
    """The provider cannot be used, or its answer is not valid. The message says why.

    The message may quote the provider, whose text may have any length and any characters.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message[:_QUOTED]))


@dataclass(frozen=True, slots=True)
class Person:
    """The person that the provider names: ``subject`` never changes, everything else may.

    ``proved_at``: when they showed the provider who they are, in seconds since the epoch; None if
    the provider does not say.
    """

    subject: str
    email: str | None
    email_verified: bool
    name: str | None
    proved_at: float | None
    claims: Mapping[str, Any]
