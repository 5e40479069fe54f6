"""Rules for values that users enter: the types of the API and the forms share them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

#: Control characters, marks of direction and line ends: with one of these, a name would look like
#: another name, or like two lines.
_UNSEEN = r"\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
#: A name that is shown in lists.
Name = Annotated[str, Meta(min_length=1, max_length=80, pattern=rf"^[^{_UNSEEN}]*$(?!\n)")]
#: A currency code in the form of ISO 4217.
Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$")]


class Unfit(ValueError):
    """A value that cannot be stored. The message says why; ``field`` is the name of its field."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


class Missing(LookupError):
    """The workspace has no ``what`` of this ``id``."""

    def __init__(self, what: str, id: str) -> None:
        super().__init__(f"This workspace has no {what} {id!r}.")


class Ambiguous(LookupError):
    """Several things have the name that was asked for. The message lists them."""


class NameTaken(ValueError):
    """There is already a ``what`` with this ``name``."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"There is already a {what} named {name!r}.")


def is_fit(kind: Any, value: object) -> bool:
    """Return whether msgspec accepts ``value`` as the type ``kind``."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def check(kind: Any, value: object, field: str, why: str) -> None:
    """Raise :class:`Unfit` unless msgspec accepts ``value`` as the type ``kind``."""
    if not is_fit(kind, value):
        raise Unfit(field, why)
