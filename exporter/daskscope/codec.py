"""Packs and unpacks what :mod:`daskscope.protocol` declares: messages as JSON, columns as text.

Standard library only.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

from daskscope.protocol import (
    MAX_GRACE,
    MAX_LEFT_OUT,
    MAX_NAME,
    MAX_STREAM,
    MAX_TEXT,
    MAX_WORDS,
    STREAM_COLUMNS,
    Command,
    Correction,
    Heartbeat,
    Reply,
)

#: The bytes of a number in packed columns.
_BYTES = 8


def code_hash(file: str, first_line: int, cut: bool, text: str) -> str:
    """Return the key of a ``protocol.Code``: the SHA-256 of all its other fields, in hex."""
    return hashlib.sha256(_utf8(f"{file}\n{first_line}\n{cut}\n{text}")).hexdigest()


def pack_columns(columns: Sequence[Sequence[int]]) -> str:
    """Return whole numbers from 0 to 2⁶³-1, in columns of equal length, as compressed text.

    All first bytes of a column come first, then all second bytes, and so on, without those that are
    all zero: a header says which there are. So small numbers take one or two bytes, and bytes that
    are alike lie together, to be compressed.
    """
    header, planes = bytearray(), []
    for column in columns:
        numbers = array("q", column)
        if sys.byteorder == "big":
            numbers.byteswap()
        data, mask = numbers.tobytes(), 0
        for place in range(_BYTES):
            plane = data[place::_BYTES]
            if plane.count(0) < len(plane):  # faster than any()
                mask |= 1 << place
                planes.append(plane)
        header.append(mask)
    return base64.b64encode(zlib.compress(b"".join((header, *planes)))).decode()


def unpack_columns(
    text: str, columns: int = len(STREAM_COLUMNS), most: int = MAX_STREAM
) -> list[array[int]]:
    """Return the columns that :func:`pack_columns` packed, of at most ``most`` numbers each.

    Raises ValueError if ``text`` is anything else. It takes no more time and memory than the
    largest that is valid.
    """
    most_bytes = columns * (1 + _BYTES * most)
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b64decode(text, validate=True), most_bytes + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"it cannot be decompressed: {error}") from None
    if len(data) > most_bytes or not unpacking.eof or unpacking.unused_data or len(data) < columns:
        raise ValueError("it does not have the size of such columns")
    planes = sum(mask.bit_count() for mask in data[:columns])
    length, odd = divmod(len(data) - columns, planes) if planes else (0, len(data) - columns)
    if odd or length > most:
        raise ValueError("its columns differ in length, or are too long")
    unpacked, at = [], columns
    for mask in data[:columns]:
        numbers = bytearray(_BYTES * length)
        for place in range(_BYTES):
            if mask & 1 << place:
                numbers[place::_BYTES] = data[at : at + length]
                at += length
        column = array("q", bytes(numbers))
        if sys.byteorder == "big":
            column.byteswap()
        unpacked.append(column)
    return unpacked


def encode(message: Heartbeat | Reply) -> bytes:
    """Return ``message`` as UTF-8 JSON."""
    return _utf8(json.dumps(message, default=_fields, separators=(",", ":"), ensure_ascii=False))


def decode_reply(body: bytes, drops: Counter[str] | None = None) -> Reply:
    """Return the reply in ``body``. Raises ValueError if it is not one.

    Commands that are not understood are left out, and counted in ``drops``.
    """
    try:
        fields: dict[str, Any] = json.loads(body)
        return Reply(
            server_time=float(fields["server_time"]),
            interval=float(fields["interval"]),
            code_wanted=tuple(map(str, fields.get("code_wanted", ()))),
            url=_address(fields.get("url")),
            commands=_commands(fields.get("commands"), Counter() if drops is None else drops),
            corrections=tuple(map(_correction, fields.get("corrections", ()))),
            # Bounded: it is added to counts that are sent, also elsewhere.
            rows_left_out=min(max(int(fields.get("rows_left_out", 0)), 0), MAX_LEFT_OUT),
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a reply of a daskscope service: {error!r}") from error


def _address(value: Any) -> str | None:
    # It becomes a link in notebooks: anything else than a page's address might be run there.
    is_one = isinstance(value, str) and value.startswith(("https://", "http://"))
    return value if is_one and value.isprintable() and len(value) <= MAX_WORDS else None


def _correction(fields: Any) -> Correction:
    field, why = (str(fields[name])[:MAX_NAME] for name in ("field", "why"))
    return Correction(field, why, left_out=bool(fields["left_out"]))


def _commands(value: Any, drops: Counter[str]) -> tuple[Command, ...]:
    if value is None:
        return ()  # the service has no commands
    commands = [_command(fields) for fields in value] if isinstance(value, list) else [None]
    understood = tuple(command for command in commands if command is not None)
    if len(understood) < len(commands):
        drops["unknown command"] += len(commands) - len(understood)
    return understood


def _command(fields: Any) -> Command | None:
    # Exactly: what a command asks for cannot be undone.
    if not isinstance(fields, dict) or fields.get("action") not in ("shutdown", "call off"):
        return None
    texts = [fields.get(name) for name in ("id", "requested_by", "reason")]
    if not all(isinstance(text, str) and len(text) <= MAX_TEXT for text in texts):
        return None
    grace, even_if_busy = fields.get("grace"), fields.get("even_if_busy", False)
    number = isinstance(grace, int | float) and not isinstance(grace, bool)
    # Compared, not converted: a whole number may be beyond what a float holds.
    if grace is not None and not (number and 0 <= grace <= MAX_GRACE):
        return None
    if not isinstance(even_if_busy, bool) or not 0 < len(fields["id"]) <= MAX_NAME:
        return None
    return Command(
        id=fields["id"],
        action=fields["action"],
        requested_by=fields["requested_by"][:MAX_NAME],
        reason=fields["reason"],
        grace=None if grace is None else float(grace),
        even_if_busy=even_if_busy,
    )


def _utf8(text: str) -> bytes:
    # A file name that is no UTF-8 is a lone surrogate in Python: it must not stop all that waits.
    return text.encode(errors="replace")


def _fields(value: Any) -> dict[str, Any]:
    # One level at a time: json calls it again for what lies inside (asdict would copy everything).
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is not part of the protocol")
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
