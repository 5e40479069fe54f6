"""The schema of a heartbeat, built from the classes of ``daskscope.protocol`` and their bounds.

The dataclasses define the fields, their types and their bounds. The JSON parser gets all of it,
checks it in one pass and names the place (``$.status.workers``) of an error. What no parser can
check, such as the order of times, is checked here.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from operator import add, attrgetter
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from daskscope import codec, protocol
from daskscope.protocol import Between, Entries, Heartbeat, Length, Moment
from daskscope_service.db.wire import fields_of, notes_in

_MAJOR = protocol.PROTOCOL.partition(".")[0]

_PATH = re.compile(r"`(\$[^`]*)`")

#: A bound of the protocol.
Bound = Between | Entries | Length | Moment


@cache
def bounded(kind: type) -> type[msgspec.Struct]:
    """Return a struct that msgspec checks, for a class of the protocol."""
    types_of = fields_of(kind)
    fields: list[Any] = []
    for field in dataclasses.fields(kind):
        checked = _checked(types_of[field.name])
        if (kind, field.name) == (Heartbeat, "protocol"):
            checked = Annotated[checked, Meta(pattern=rf"^{_MAJOR}(\.|$)")]
        if field.default is not dataclasses.MISSING:
            fields.append((field.name, checked, field.default))
        elif field.default_factory is not dataclasses.MISSING:
            fields.append(
                (field.name, checked, msgspec.field(default_factory=field.default_factory))
            )
        else:
            fields.append((field.name, checked))
    return msgspec.defstruct(kind.__name__, fields, frozen=True, gc=False)


def _checked(kind: Any) -> Any:
    kind, notes = notes_in(kind)
    if dataclasses.is_dataclass(kind):
        return bounded(cast(type, kind))
    arguments, origin = typing.get_args(kind), typing.get_origin(kind)
    if origin is tuple:  # of any length: tuple[X, ...]
        kind = types.GenericAlias(tuple, (_checked(arguments[0]), ...))
    elif origin is dict:
        kind = types.GenericAlias(dict, tuple(map(_checked, arguments)))
    elif origin in (types.UnionType, typing.Union):
        kind = typing.Union[tuple(map(_checked, arguments))]  # noqa: UP007
    for note in notes:
        if isinstance(note, Bound):
            kind = Annotated[kind, _meta(note)]
    return kind


def _meta(bound: Bound) -> Meta:
    if isinstance(bound, Between):
        return Meta(ge=bound.least, le=bound.most)
    if isinstance(bound, Moment):
        return Meta(ge=protocol.EARLIEST)
    if isinstance(bound, Entries):
        return Meta(max_length=bound.most)
    # With "$" alone, a line end could follow the match.
    pattern = None if bound.pattern is None else f"^{bound.pattern}$(?!\\n)"
    return Meta(max_length=bound.most, pattern=pattern)


#: The struct of a heartbeat, with the fields of :class:`daskscope.protocol.Heartbeat`.
BEAT = bounded(Heartbeat)


def make_decoder() -> msgspec.json.Decoder[Heartbeat]:
    """Return a decoder of JSON bytes to a heartbeat.

    What it returns has the fields of :class:`daskscope.protocol.Heartbeat`, though it is not an
    instance of it. It ignores unknown fields.
    """
    return cast("msgspec.json.Decoder[Heartbeat]", msgspec.json.Decoder(BEAT))


def _rows_of_a_beat() -> Iterator[tuple[str, type]]:
    for name, kind in fields_of(Heartbeat).items():
        inner, _ = notes_in(kind)
        if typing.get_origin(inner) is tuple:
            yield name, typing.get_args(inner)[0]


#: The fields of a heartbeat that hold rows, each with the class of the rows.
ROWS = dict(_rows_of_a_beat())


#: Returns the times in an object, None for those that it does not have.
_Times = Callable[[Any], tuple[float | None, ...]]


def _times_of(kind: type) -> _Times | None:
    """Return what reads the times of objects of a class, and of those inside them."""
    fields = fields_of(kind)
    named = [name for name, hint in fields.items() if _is_time(hint)]
    # attrgetter returns a tuple only for two or more names.
    own = attrgetter(*named, *named) if len(named) == 1 else attrgetter(*named) if named else None
    inner = [(name, times) for name, hint in fields.items() if (times := _times_inside(hint))]
    if not inner:
        return own

    def times_of(row: Any) -> tuple[float | None, ...]:
        moments = () if own is None else own(row)
        for name, times in inner:
            value = getattr(row, name)
            for one in value if isinstance(value, list | tuple) else (value,):
                moments += () if one is None else times(one)
        return moments

    return times_of


def _times_inside(hint: Any) -> _Times | None:
    """Return what reads the times of the objects in a field, if it holds such: one or several."""
    inner, _ = notes_in(hint)
    if dataclasses.is_dataclass(inner):
        return _times_of(cast(type, inner))
    return next(filter(None, map(_times_inside, typing.get_args(inner))), None)


def _is_time(hint: Any) -> bool:
    _, notes = notes_in(hint)
    return Moment() in notes or any(map(_is_time, typing.get_args(hint)))


_IN_ORDER = {
    name: tuple(attrgetter(*pair) for pair in protocol.IN_ORDER[kind])
    for name, kind in ROWS.items()
    if kind in protocol.IN_ORDER
}

_TIMES = {name: times for name, kind in ROWS.items() if (times := _times_of(kind)) is not None}
#: Of the beat itself, the cluster and its status, which are no rows.
_OTHER_TIMES = {
    name: times
    for name, hint in fields_of(Heartbeat).items()
    if name not in ROWS and (times := _times_inside(hint)) is not None
}


def problem_in(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return what an error says is wrong, and where: a JSON path."""
    what, _, place = str(error).partition(" - at ")
    path = _PATH.search(place)  # of a key: `key` in `$.tags`
    return what, path[1] if path else "$"


def is_within(beat: Heartbeat, latest: float) -> bool:
    """Return whether no time in ``beat`` is after ``latest``, and each row is consistent."""
    if beat.sent_at > latest:
        return False
    for name, times in _OTHER_TIMES.items():
        if any(time is not None and time > latest for time in times(getattr(beat, name))):
            return False
    for name, times in _TIMES.items():
        for row in getattr(beat, name):
            for time in times(row):
                if time is not None and time > latest:
                    return False
    for name, pairs in _IN_ORDER.items():
        for row in getattr(beat, name):
            for pair in pairs:
                first, second = pair(row)
                if first is not None and second is not None and second < first:
                    return False
    return not any(misfit(name, row) for name in _MISFITS for row in getattr(beat, name))


def misfit(name: str, row: Any) -> tuple[str, str] | None:
    """Return what is inconsistent in ``row``, of a heartbeat's field ``name``; None if nothing.

    It is a pair: a field of the row, and what is wrong with it.
    """
    look = _MISFITS.get(name)
    return None if look is None else look(row)


def _misfit_of_code(code: protocol.Code) -> tuple[str, str] | None:
    if code.hash == codec.code_hash(code.file, code.first_line, code.cut, code.text):
        return None
    return "hash", (
        "it is not the hash of the code beside it (daskscope.codec.code_hash computes it)"
    )


def _misfit_of_profile(profile: protocol.Profile) -> tuple[str, str] | None:
    parent, line, nodes = profile.parent, profile.line, len(profile.samples)
    if len(parent) != nodes or len(line) != nodes:
        return "samples", "parent, line and samples differ in length"
    if any(above >= node for node, above in enumerate(parent)):
        return "parent", "a parent must come before its children"
    if line and max(line) >= len(profile.lines):
        return "line", f"it refers to a line beyond the {len(profile.lines)} lines of the profile"
    return None


def _misfit_of_stream(stream: protocol.TaskStream) -> tuple[str, str] | None:
    try:
        columns = codec.unpack_columns(stream.columns, most=_most_entries(stream))
    except ValueError as error:
        return "columns", str(error)
    if not columns[0] or min(map(min, columns)) < 0:
        return "columns", "they are empty, or hold a number below 0"
    worker, prefix, outcome, start, length, count, *amounts = columns
    for column, names in (
        (worker, stream.workers),
        (prefix, stream.prefixes),
        (outcome, protocol.STREAM_OUTCOMES),
    ):
        if max(column) >= len(names):
            return "columns", "they refer to a worker, a prefix or an outcome that is not there"
    if max(map(max, amounts)) * protocol.STREAM_UNIT > protocol.MAX_AMOUNT:
        return "columns", "they hold more seconds than can be"
    ends = map(add, accumulate(start), length)
    spans = stream.stopped_at - stream.started_at
    if max(ends) * protocol.STREAM_UNIT > spans + _ROUNDED:
        return "columns", "a run ends after stopped_at"
    if min(count) < 1 or sum(count) != stream.runs:
        return "runs", "it is not the sum of the counts"
    if sum(one for one in count if one > 1) != stream.merged:
        return "merged", "it is not the sum of the counts of what is merged"
    return None


def _most_entries(stream: protocol.TaskStream) -> int:
    # Each is at least one run.
    return min(stream.runs, protocol.MAX_STREAM)


def entries_of(beat: Heartbeat) -> int:
    """Return how many entries the task streams of ``beat`` may have, without unpacking them.

    A kilobyte can hold thousands, and each takes about as long to check as ten bytes of JSON.
    """
    return sum(map(_most_entries, beat.task_streams))


#: What times of a task stream may differ by, as they are rounded to floats.
_ROUNDED = 0.001

_MISFITS: dict[str, Callable[[Any], tuple[str, str] | None]] = {
    "code": _misfit_of_code,
    "profiles": _misfit_of_profile,
    "task_streams": _misfit_of_stream,
}
