"""Heartbeats of extreme values, made of what the protocol declares: no list of its own.

``beats()`` are within bounds. ``beats(wide=True)`` have what a service stored before there were
such: numbers of 64 bits and either sign, any time up to the year 9999, columns that do not fit.
"""

from __future__ import annotations

import dataclasses
import time
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Literal

from hypothesis import strategies as st

from daskscope import codec, protocol
from daskscope.codec import code_hash
from daskscope.protocol import Between, Entries, Heartbeat, Length, Moment
from daskscope_service.db.wire import fields_of, notes_in
from daskscope_service.insight.time import ACTIVITIES

CLUSTERS, COMPUTATIONS, PROFILE, FINGERPRINT = ("A", "B"), ("c1", "c2"), "p1", "1:abc"
TRACE = "0123456789abcdef" * 2

Change = Callable[[Any], Any]

#: What mappings have entries of that pages look for, and one that none looks for.
_KEYS = (*ACTIVITIES, "memory", "processing", "unrunnable", "thread", "cluster", "=1", "\n", "é")
_TEXTS = ("", "a", "=1+1", "\n@x", "</script>", "\u202e", "\uffff" * 30, "1.0", "USD")

#: Fields by which rows belong together, and what these may be.
_TOGETHER: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (protocol.Cluster, "id"): st.sampled_from(CLUSTERS),
    (protocol.Cluster, "workspace"): st.none(),
    (protocol.Heartbeat, "protocol"): st.just(protocol.PROTOCOL),
    (protocol.Computation, "id"): st.sampled_from(COMPUTATIONS),
    (protocol.Computation, "trace_id"): st.sampled_from((None, TRACE)),
    (protocol.TaskGroup, "computation"): st.sampled_from(COMPUTATIONS),
    (protocol.TaskGroup, "name"): st.sampled_from(("sum-1", "read-1")),
    (protocol.TaskGroup, "dependencies"): st.sampled_from(((), ("sum-1",), ("read-1", "sum-1"))),
    (protocol.Failure, "computation"): st.sampled_from((None, *COMPUTATIONS)),
    (protocol.Failure, "fingerprint"): st.just(FINGERPRINT),
    (protocol.Profile, "id"): st.just(PROFILE),
}


def beats(*, wide: bool = False) -> st.SearchStrategy[Heartbeat]:
    """Return a strategy of heartbeats that have a row of everything."""
    return _values(Heartbeat, wide)


def _values(kind: Any, wide: bool) -> st.SearchStrategy[Any]:
    inner, bounds = notes_in(kind)
    if dataclasses.is_dataclass(inner):
        return _rows(typing.cast(type, inner), wide)
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(_values(one, wide) for one in arguments))
    if inner is type(None):
        return st.none()
    if origin is Literal:
        return st.sampled_from(arguments)
    if inner is bool:
        return st.booleans()
    if inner is str:
        most = next(bound.most for bound in bounds if isinstance(bound, Length))
        return st.sampled_from((*_TEXTS, "w" * most)).map(lambda text: text[:most])
    if origin is dict:
        return st.dictionaries(st.sampled_from(_KEYS), _values(arguments[1], wide), max_size=4)
    if origin is tuple:
        rows = dataclasses.is_dataclass(arguments[0])
        most = next(bound.most for bound in bounds if isinstance(bound, Entries))
        several = st.lists(_values(arguments[0], wide), min_size=int(rows), max_size=min(most, 3))
        return several.map(tuple)
    return _numbers(inner, bounds, wide)


@dataclasses.dataclass(frozen=True)
class Extreme:
    """One field at one of its bounds: which, what it is then, and what makes a value so."""

    field: str
    what: str
    change: Change

    def clashes(self, other: Extreme) -> bool:
        """Return whether only one of both can be in a value."""
        shorter, longer = sorted((self.field, other.field), key=len)
        return longer.startswith(shorter) and longer[len(shorter) :][:1] in ("", ".", "[")


def extremes_of(value: Any, kind: Any = Heartbeat, field: str = "") -> Iterator[Extreme]:
    """Yield what makes ``value`` differ in one field, which is then at one of its bounds.

    Of rows, the first one differs.
    """
    inner, bounds = notes_in(kind)
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)

    def instead(*some: Any) -> Iterator[Extreme]:
        for one in some:
            yield Extreme(field, repr(one)[:12], _become(one))

    if origin in (types.UnionType, typing.Union):
        yield from instead(None)
        if value is not None:
            [inner] = [one for one in arguments if one is not type(None)]
            yield from extremes_of(value, inner, field)
    elif dataclasses.is_dataclass(inner):
        kept = _KEPT.get(inner, lambda row: row)
        for name, hint in fields_of(typing.cast(type, inner)).items():
            if (inner, name) not in _TOGETHER and (inner, name) != (protocol.Code, "hash"):
                for one in extremes_of(getattr(value, name), hint, f"{field}.{name}"):
                    yield dataclasses.replace(one, change=_in_field(name, one.change, kept))
    elif origin is Literal:
        yield from instead(*(one for one in arguments if one != value))
    elif inner is bool:
        yield from instead(not value)
    elif inner is str:
        most = next(bound.most for bound in bounds if isinstance(bound, Length))
        yield from instead("", "\uffff" * most)
    elif origin is dict:
        yield from instead({})
        for key, inside in value.items():
            for one in extremes_of(inside, arguments[1], f"{field}[{key}]"):
                yield dataclasses.replace(one, change=_of_keys((key,), one.change))
        # Their sums, too, are at a bound.
        for one in extremes_of(inside, arguments[1], field) if value else ():
            yield dataclasses.replace(one, change=_of_keys((*value,), one.change))
    elif origin is tuple:
        yield from instead(())
        for one in extremes_of(value[0], arguments[0], field) if value else ():
            yield dataclasses.replace(one, change=_of_first(one.change))
    else:
        some = _extremes(inner, bounds, wide=False)
        yield from instead(*dict.fromkeys((some[0], some[1], some[-1])))


def _become(value: Any) -> Change:
    return lambda _: value


def _in_field(name: str, change: Change, kept: Change) -> Change:
    return lambda row: kept(dataclasses.replace(row, **{name: change(getattr(row, name))}))


def _of_keys(keys: tuple[str, ...], change: Change) -> Change:
    return lambda entries: entries | {key: change(entries[key]) for key in keys}


def _of_first(change: Change) -> Change:
    return lambda rows: (change(rows[0]), *rows[1:])


def in_groups(extremes: Sequence[Extreme], most: int, times: int) -> list[list[Extreme]]:
    """Put each of ``extremes`` into so many groups that can be in one value, of others each time.

    What one hides in one of its groups, by what is beside it, another shows.
    """
    order = Random(0)
    groups: list[list[Extreme]] = []
    for _ in range(times):
        left = [*extremes]
        made: list[list[Extreme]] = []
        order.shuffle(left)
        for one in left:
            for group in made:
                if len(group) < most and not any(map(one.clashes, group)):
                    group.append(one)
                    break
            else:
                made.append([one])
        groups += made
    return groups


def _numbers(kind: type, bounds: tuple[Any, ...], wide: bool) -> st.SearchStrategy[Any]:
    return st.sampled_from(_extremes(kind, bounds, wide))


def _extremes(kind: type, bounds: tuple[Any, ...], wide: bool) -> list[Any]:
    [bound] = bounds
    some: tuple[float, ...]
    if isinstance(bound, Moment):
        some = (protocol.EARLIEST, time.time(), time.time() - 60, time.time() + 86_000)
        if wide:
            some = (0.0, time.time(), 253_402_300_799.0)
    else:
        assert isinstance(bound, Between)
        some = (bound.least, bound.most, min(bound.least + 1, bound.most))
        if kind is float and bound.least <= 0.0:
            some += (1e-300, 5e-324)  # what divides by them is beyond all bounds
        if wide:
            some = (-(2**63), 2**63 - 1, 1, 0) if kind is int else (-1e15, 1e15, 1.0, 0.0)
    return [kind(number) for number in some]


def _rows(kind: type, wide: bool) -> st.SearchStrategy[Any]:
    fields = {
        name: _TOGETHER[kind, name] if (kind, name) in _TOGETHER else _values(hint, wide)
        for name, hint in fields_of(kind).items()
    }
    if kind is protocol.Cluster:
        fields["interval"] = st.sampled_from((0.01, 10.0, 86_400.0))
    made = st.builds(kind, **fields)
    if kind is protocol.Code:
        return made.map(_hashed)
    if kind is protocol.Profile and not wide:
        return made.map(_fitting)
    if kind is protocol.TaskStream and not wide:
        return made.map(_fitting_stream)
    return made


def _hashed(code: protocol.Code) -> protocol.Code:
    made = code_hash(code.file, code.first_line, code.cut, code.text)
    return dataclasses.replace(code, hash=made)


def _fitting(profile: protocol.Profile) -> protocol.Profile:
    nodes = range(len(profile.samples))
    above, line = ((*column, 0, 0, 0) for column in (profile.parent, profile.line))
    return dataclasses.replace(
        profile,
        parent=tuple(int(above[node]) % (node + 1) - 1 for node in nodes),
        line=tuple(int(line[node]) % len(profile.lines) for node in nodes),
    )


def _fitting_stream(stream: protocol.TaskStream) -> protocol.TaskStream:
    """Return ``stream`` as of one run, at its start."""
    return dataclasses.replace(
        stream,
        runs=1,
        merged=0,
        workers=stream.workers or ("",),
        prefixes=stream.prefixes or ("",),
        columns=codec.pack_columns([[0]] * 5 + [[1]] + [[0]] * 4),
    )


#: By the class of a row: the function that makes it consistent again.
_KEPT: dict[Any, Callable[[Any], Any]] = {
    protocol.Code: _hashed,
    protocol.TaskStream: _fitting_stream,
}
