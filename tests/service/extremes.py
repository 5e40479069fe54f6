"""Heartbeats of extreme values, made of what the protocol declares: no list of its own.

``beats()`` are within bounds. ``beats(wide=True)`` have what a service stored before there were
such: numbers of 64 bits and either sign, any time up to the year 9999, columns that do not fit.
"""

from __future__ import annotations

import dataclasses
import time
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

from hypothesis import strategies as st

from daskscope import protocol
from daskscope.protocol import Between, Entries, Heartbeat, Length, Moment, code_hash
from daskscope_service.db.wire import fields_of, notes_in
from daskscope_service.insight.time import ACTIVITIES

CLUSTERS, COMPUTATIONS, PROFILE, FINGERPRINT = ("A", "B"), ("c1", "c2"), "p1", "1:abc"
TRACE = "0123456789abcdef" * 2

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


def one_extreme(value: Any, kind: Any = Heartbeat, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what differs from ``value`` in one field, which is at its bounds, and which that is.

    Of rows, the first one differs.
    """
    inner, bounds = notes_in(kind)
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)
    if origin in (types.UnionType, typing.Union):
        yield f"{path} none", None
        if value is not None:
            [inner] = [one for one in arguments if one is not type(None)]
            yield from one_extreme(value, inner, path)
    elif dataclasses.is_dataclass(inner):
        for name, hint in fields_of(typing.cast(type, inner)).items():
            if (inner, name) not in _TOGETHER and (inner, name) != (protocol.Code, "hash"):
                for what, other in one_extreme(getattr(value, name), hint, f"{path}.{name}"):
                    yield what, dataclasses.replace(value, **{name: other})
    elif origin is Literal:
        yield from ((f"{path} {one}", one) for one in arguments if one != value)
    elif inner is bool:
        yield f"{path} {not value}", not value
    elif inner is str:
        most = next(bound.most for bound in bounds if isinstance(bound, Length))
        yield from ((f"{path} {text[:9]!r}", text) for text in ("", "\uffff" * most))
    elif origin is dict:
        yield f"{path} empty", {}
        for key, one in value.items():
            for what, other in one_extreme(one, arguments[1], f"{path}[{key}]"):
                yield what, {**value, key: other}
        # Their sums, too, are at a bound.
        for what, other in one_extreme(one, arguments[1], f"{path}[all]") if value else ():
            yield what, dict.fromkeys(value, other)
    elif origin is tuple:
        yield f"{path} empty", ()
        for what, other in one_extreme(value[0], arguments[0], path) if value else ():
            yield what, (other, *value[1:])
    else:
        some = _extremes(inner, bounds, wide=False)
        yield from ((f"{path} {one!r}", one) for one in {some[0], some[1], some[-1]})


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
