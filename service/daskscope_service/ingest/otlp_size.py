"""Counts the messages in a protobuf body before they are decoded.

Two bytes can be a message that takes a hundred times as much memory, so the length of a body does
not show its cost. Most bodies pass a quick check. A body that may hold too many messages is read
field by field, up to the first one too many.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from daskscope_service.ingest.decoding_turns import LARGE_BYTES
from daskscope_service.web.problems import Problem

#: The most messages in a body, including attributes and their values. A batch of 8,192 points or
#: spans with ten attributes each has a fifth of that.
MOST_MESSAGES = 1_000_000

#: How deeply protobuf itself accepts messages in messages.
_DEEPEST = 100

#: Bytes that cannot begin a field with a message: the wire type is in the last three bits.
_OTHERS = bytes(byte for byte in range(256) if byte & 7 != 2)

#: Reading so many messages takes up to a third of a second.
_FEW_MESSAGES = 50_000

_Fields = Mapping[int, Descriptor]


def is_costly(body: bytes) -> bool:
    """Return whether ``body`` takes long to decode: such bodies are decoded one at a time."""
    return len(body) > LARGE_BYTES or len(body.translate(None, _OTHERS)) > _FEW_MESSAGES


def check(body: bytes, message: Message, most: int = MOST_MESSAGES) -> None:
    """Refuse a body that would make more than ``most`` messages below ``message``.

    Raises
    ------
    Problem
        413, in that case.
    """
    if len(body.translate(None, _OTHERS)) <= most:
        return
    if count(body, message, most) > most:
        raise Problem(
            413,
            f"The body has more than {most:,} messages: points, spans or records, their "
            "attributes, and the values of those; send smaller requests.",
        )


def count(body: bytes, message: Message, most: int) -> int:
    """Return how many messages are below ``message`` in ``body``, but no more than ``most`` + 1.

    In an invalid body, those before the first error count.
    """
    count, place, end = 0, 0, len(body)
    fields = _messages_in(message.DESCRIPTOR)
    outer: list[tuple[int, _Fields]] = []
    try:
        while count <= most:
            if place >= end:
                if not outer:
                    break
                end, fields = outer.pop()
                continue
            tag, place = _varint(body, place)
            kind = tag & 7
            if kind == 2:
                length, place = _varint(body, place)
                inner = fields.get(tag >> 3)
                if inner is None:
                    place += length
                    continue
                if place + length > end or len(outer) >= _DEEPEST:
                    break  # the parser reports it
                count += 1
                if length:
                    outer.append((end, fields))
                    end, fields = place + length, _messages_in(inner)
            elif kind == 0:
                _, place = _varint(body, place)
            elif kind == 1:
                place += 8
            elif kind == 5:
                place += 4
            # 3 and 4 begin and end a group, whose fields OTLP does not know.
    except IndexError:  # the body ends within a number
        pass
    return count


def _varint(body: bytes, place: int) -> tuple[int, int]:
    byte = body[place]
    place += 1
    if byte < 0x80:
        return byte, place
    value, shift = byte & 0x7F, 7
    while byte >= 0x80 and shift < 70:
        byte = body[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, place


@functools.cache
def _messages_in(kind: Descriptor) -> _Fields:
    return {field.number: field.message_type for field in kind.fields if field.message_type}
