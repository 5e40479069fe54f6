"""What a heartbeat must look like, made from ``daskscope.protocol``: its classes plus bounds.

The dataclasses say which fields there are and of what type. Here every text gets a length, every
number a range that the database and the pages can hold, so that the JSON parser checks all of it in
one pass and names the place (``$.status.workers``) of what is wrong.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from daskscope import protocol
from daskscope.protocol import Heartbeat

#: Characters of a name, an id, a path: whatever is not one of the long texts.
MAX_NAME = 4_000

#: Characters of a name that is part of a row's key or of an index: PostgreSQL puts no more than
#: 2,700 bytes into one. Schedulers cut names at the same length.
MAX_KEY = protocol.MAX_NAME

#: Characters of an id that is part of a row's key beside such names.
MAX_ID = 100

#: Characters of a cluster's id.
MAX_CLUSTER_ID = 200

_KEYS = frozenset({"name", "prefix", "user", "id"})
_IDS = frozenset({"computation", "fingerprint", "hash"})

#: Fields that hold text at length, bounded by :data:`daskscope.protocol.MAX_TEXT`.
_LONG_TEXTS = frozenset({"message", "traceback", "text"})

_NAME = Annotated[str, Meta(max_length=MAX_NAME)]
_KEY = Annotated[str, Meta(max_length=MAX_KEY)]
_ID = Annotated[str, Meta(max_length=MAX_ID)]
_LONG_TEXT = Annotated[str, Meta(max_length=protocol.MAX_TEXT)]
_COUNT = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_SECONDS = Annotated[float, Meta(ge=-1e15, le=1e15)]
_TIME = Annotated[float, Meta(ge=0, le=253_402_300_799)]  # 1970 to 9999
_MAJOR = protocol.PROTOCOL.partition(".")[0]
_EXACT: dict[tuple[str, str], Any] = {
    ("Heartbeat", "protocol"): Annotated[str, Meta(pattern=rf"^{_MAJOR}(\.|$)", max_length=40)],
    # Part of the address of pages.
    ("Cluster", "id"): Annotated[str, Meta(pattern=rf"^[A-Za-z0-9._:@+~-]{{1,{MAX_CLUSTER_ID}}}$")],
    ("Computation", "id"): _ID,
    ("Cluster", "interval"): Annotated[float, Meta(ge=0.01, le=86_400)],
}


@cache
def _bounded(kind: type) -> type[msgspec.Struct]:
    hints = typing.get_type_hints(kind)
    fields: list[Any] = []
    for field in dataclasses.fields(kind):
        bounded = _EXACT.get((kind.__name__, field.name)) or _annotate(
            hints[field.name], field.name
        )
        if field.default is not dataclasses.MISSING:
            fields.append((field.name, bounded, field.default))
        elif field.default_factory is not dataclasses.MISSING:
            fields.append(
                (field.name, bounded, msgspec.field(default_factory=field.default_factory))
            )
        else:
            fields.append((field.name, bounded))
    return msgspec.defstruct(kind.__name__, fields, frozen=True, gc=False)


def _annotate(kind: Any, name: str) -> Any:
    if kind is str:
        if name in _LONG_TEXTS:
            return _LONG_TEXT
        return _KEY if name in _KEYS else _ID if name in _IDS else _NAME
    if kind is int:
        return _COUNT
    if kind is float:
        return _TIME if name == "at" or name.endswith("_at") else _SECONDS
    if dataclasses.is_dataclass(kind):
        return _bounded(cast(type, kind))
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is tuple:  # of any length: tuple[X, ...]
        return types.GenericAlias(tuple, (_annotate(arguments[0], name), ...))
    if origin is dict:
        return types.GenericAlias(dict, tuple(_annotate(argument, "") for argument in arguments))
    if origin in (types.UnionType, typing.Union):
        return typing.Union[tuple(_annotate(argument, name) for argument in arguments)]  # noqa: UP007
    return kind


#: A heartbeat, bounded: with the fields of :class:`daskscope.protocol.Heartbeat`.
BEAT = _bounded(Heartbeat)


def make_decoder() -> msgspec.json.Decoder[Heartbeat]:
    """Return a decoder of JSON bytes to a heartbeat.

    What it returns has the fields of :class:`daskscope.protocol.Heartbeat`, though it is not an
    instance of it. It ignores unknown fields.
    """
    return cast("msgspec.json.Decoder[Heartbeat]", msgspec.json.Decoder(BEAT))
