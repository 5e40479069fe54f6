"""Corrects heartbeats with values out of bounds: keeps what it can, and reports the rest.

A number or a time out of bounds is replaced by the nearest one within them, and an end before its
start by the start. Entries beyond the largest number are left out. A row that is wrong in another
way is left out, and the others are stored. If the cluster or its status is wrong in another way,
the heartbeat is refused.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeGuard, cast

import msgspec

from daskscope import protocol
from daskscope.protocol import Between, Correction, Entries, Heartbeat, Moment
from daskscope_service.db.wire import fields_of, notes_in
from daskscope_service.ingest.beat_schema import (
    BEAT,
    ROWS,
    bounded,
    misfit,
    problem_in,
)

#: How many corrections of one heartbeat are reported.
MOST_REPORTED = 5

#: Bytes that the mismatches of a cluster may have, as JSON: a hundred packages with a hundred
#: versions each have fewer. Without this limit they could fill a heartbeat, and lists show many
#: clusters.
MOST_OF_MISMATCHES = 256 * 1024


@dataclasses.dataclass(slots=True)
class Corrected:
    """A heartbeat within bounds, the first corrections, and how many rows were left out."""

    beat: Heartbeat
    reported: tuple[Correction, ...] = ()
    rows_left_out: int = 0


def correct(document: Any, now: float) -> Corrected:
    """Return the valid parts of a heartbeat, given as parsed JSON, which is changed in place.

    Raises
    ------
    msgspec.ValidationError
        It is not a heartbeat, or its cluster or status is invalid.
    """
    work = _Work(now + protocol.MAX_AHEAD)
    left_out = 0
    if isinstance(document, dict):
        for name, kind in fields_of(Heartbeat).items():
            if name in document:
                document[name] = work.within(document[name], kind, f"$.{name}")
        for name, kind in ROWS.items():
            rows = document.get(name)
            if isinstance(rows, list):
                kept = [row for index, row in enumerate(rows) if work.fits(row, kind, name, index)]
                left_out += len(rows) - len(kept)
                document[name] = kept
    beat = cast(Heartbeat, msgspec.convert(document, BEAT))
    return Corrected(beat, tuple(work.reported), left_out)


def fit(corrected: Corrected) -> Corrected:
    """Return a heartbeat without the mismatches beyond :data:`MOST_OF_MISMATCHES`."""
    kept: list[protocol.Mismatch] = []
    size = 0
    mismatches = corrected.beat.status.mismatches
    for one in mismatches:
        size += len(msgspec.json.encode(one))
        if size > MOST_OF_MISMATCHES:
            break
        kept.append(one)
    if len(kept) == len(mismatches):
        return corrected
    why = f"{len(mismatches)} mismatches of more than {MOST_OF_MISMATCHES} bytes"
    status = msgspec.structs.replace(cast(Any, corrected.beat.status), mismatches=tuple(kept))
    beat = msgspec.structs.replace(cast(Any, corrected.beat), status=status)
    correction = Correction("$.status.mismatches", why, left_out=True)
    return Corrected(
        cast(Heartbeat, beat),
        (*corrected.reported, correction)[-MOST_REPORTED:],
        corrected.rows_left_out,
    )


class _Work:
    def __init__(self, latest: float) -> None:
        self._latest = latest
        self.reported: list[Correction] = []

    def within(self, value: Any, kind: Any, path: str) -> Any:
        """Return ``value`` within the bounds of ``kind``; a value of another type is unchanged."""
        inner, notes = notes_in(kind)
        origin = typing.get_origin(inner)
        if origin in (types.UnionType, typing.Union):
            [inner] = [one for one in typing.get_args(inner) if one is not type(None)]
            return self.within(value, inner, path)
        for note in notes:
            value = self._bound(value, note, inner, path)
        if dataclasses.is_dataclass(inner) and isinstance(value, dict):
            for name, of_field in fields_of(cast(type, inner)).items():
                if name in value:
                    value[name] = self.within(value[name], of_field, f"{path}.{name}")
            for first, second in protocol.IN_ORDER.get(cast(type, inner), ()):
                self._put_in_order(value, first, second, path)
        elif origin is dict and isinstance(value, dict):
            _, of_values = typing.get_args(inner)
            for key, item in value.items():
                value[key] = self.within(item, of_values, f"{path}[...]")
        elif origin is tuple and isinstance(value, list):
            of_items = typing.get_args(inner)[0]
            for index, item in enumerate(value):
                value[index] = self.within(item, of_items, f"{path}[{index}]")
        return value

    def fits(self, row: Any, kind: type, name: str, index: int) -> bool:
        """Return whether a row can be stored; report it if not."""
        path = f"$.{name}[{index}]"
        try:
            wrong = misfit(name, msgspec.convert(row, bounded(kind)))
        except msgspec.ValidationError as error:
            what, below = problem_in(error)
            self._report(path + below[1:], what, left_out=True)
            return False
        if wrong is not None:
            self._report(f"{path}.{wrong[0]}", wrong[1], left_out=True)
        return wrong is None

    def _bound(self, value: Any, bound: Any, kind: Any, path: str) -> Any:
        if isinstance(bound, Entries):
            if isinstance(value, dict | list) and len(value) > bound.most:
                self._report(
                    path, f"{len(value)} entries; at most {bound.most} are allowed", left_out=True
                )
                value = (
                    dict(list(value.items())[: bound.most])
                    if isinstance(value, dict)
                    else value[: bound.most]
                )
            return value
        if not _is_number(value):
            return value
        if isinstance(bound, Moment):
            least, most = protocol.EARLIEST, self._latest
        elif isinstance(bound, Between):
            least, most = bound.least, bound.most
        else:
            return value
        if least <= value <= most:
            return value
        nearest = kind(min(max(value, least), most))
        self._report(path, f"{_number(value)} is not from {least:g} to {most:g}", left_out=False)
        return nearest

    def _put_in_order(self, row: dict[str, Any], first: str, second: str, path: str) -> None:
        least, value = row.get(first), row.get(second)
        if _is_number(least) and _is_number(value) and value < least:
            row[second] = least
            self._report(f"{path}.{second}", f"it is less than {first}", left_out=False)

    def _report(self, field: str, why: str, *, left_out: bool) -> None:
        if len(self.reported) < MOST_REPORTED:
            field = field[: protocol.MAX_NAME]
            self.reported.append(Correction(field, why[: protocol.MAX_NAME], left_out))


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> str:
    try:
        return f"{value:g}"
    except OverflowError:  # a whole number beyond what a float holds
        return "a number of very many digits"
