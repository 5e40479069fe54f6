"""Reads request bodies, bounded before and after decompression, and JSON by its type.

The decoder of JSON goes a call deeper for each object and array. Where Python 3.13 would end that,
the stack of a thread may have ended before, and with it the process: see :func:`depth`.
"""

from __future__ import annotations

import re
import zlib
from itertools import accumulate
from typing import IO, TypeVar

import msgspec
from flask import Request, request

from daskscope_service.web.problems import Problem

#: The values of Content-Encoding that are understood.
ENCODINGS = frozenset({"", "identity", "gzip"})

_GZIP = 16 + zlib.MAX_WBITS

#: JSON that people and programs send in one request is short.
MAX_BYTES = 64 * 1024

# One without an end, too: it is looked through once, and not from each of its quotation marks.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{[]}"))
_DEPTH_OF = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}

T = TypeVar("T")


def receive(request: Request, limit: int) -> bytes:
    """Return the body of ``request`` as it was sent.

    Raises
    ------
    Problem
        413 for more than ``limit`` bytes, 415 for an encoding other than gzip.
    """
    encoding = encoding_of(request)
    if encoding not in ENCODINGS:
        raise Problem(
            415,
            f"Content-Encoding {encoding!r} is not supported; send gzip, or none.",
            headers={"Accept-Encoding": "gzip"},
        )
    if (request.content_length or 0) > limit:
        raise too_large(limit)
    request.max_content_length = 2 * limit  # in place of that of forms: it is looked at here
    body = read(request.stream, request.content_length, limit + 1)
    if len(body) > limit:
        raise too_large(limit)
    return body


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the ``body`` that :func:`receive` returned, decompressed.

    ``encoding`` is one of ``ENCODINGS``.

    Raises
    ------
    Problem
        413 for more than ``limit`` bytes, 400 for gzip that is broken or cut off.
    """
    return _gunzip(body, limit) if encoding == "gzip" else body


def unpacked_small(body: bytes, encoding: str, most: int) -> bytes | None:
    """Return the ``body`` decompressed, or None if it has more than ``most`` bytes then.

    Raises Problem as :func:`unpacked` does.
    """
    if len(body) > most:
        return None
    try:
        return _gunzip(body, most) if encoding == "gzip" else body
    except Problem as problem:
        if problem.status == 413:
            return None
        raise


def encoding_of(request: Request) -> str:
    """Return what ``request`` says of its body, one of ``ENCODINGS`` if it is understood."""
    return request.headers.get("Content-Encoding", "identity").strip().lower()


def read(stream: IO[bytes], length: int | None, most: int) -> bytes:
    """Return ``most`` bytes of ``stream``, or all that come. ``length``: how many it has."""
    # One read may return less than there is. Room is made for all that is asked for.
    at_once = most if length is None else min(most, length)
    chunks: list[bytes] = []
    while most > 0 and (chunk := stream.read(min(at_once, most))):
        chunks.append(chunk)
        most -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _gunzip(body: bytes, limit: int) -> bytes:
    unzip = zlib.decompressobj(_GZIP)
    try:
        # Stops by itself at one byte too many: a bomb costs no more memory than that.
        text = unzip.decompress(body, limit + 1)
    except zlib.error as error:
        raise Problem(400, f"The body is not gzip, as Content-Encoding says: {error}.") from None
    if len(text) > limit:
        raise too_large(limit)
    if not unzip.eof or unzip.unused_data:
        raise Problem(400, "The gzip body is truncated, or has data after its end.")
    return text


def too_large(limit: int) -> Problem:
    """Return the answer to a body of more than ``limit`` bytes."""
    return Problem(
        413, f"The body is larger than {limit} bytes after decompression; send less at a time."
    )


def json_body(kind: type[T]) -> T:
    """Return the body of the request as a ``kind``, a msgspec struct; an empty body as ``{}``.

    Raises
    ------
    Problem
        413: too large. 415: not sent as JSON. 400: not JSON, or a field is missing, unknown, or
        holds something that it cannot; ``field`` names it as a JSON path.
    """
    body = receive(request, MAX_BYTES)
    if body and request.mimetype != "application/json":
        # A form of another site could send anything else.
        raise Problem(
            415,
            f"Content-Type {request.mimetype or 'is missing'}: send it as JSON, with "
            "'Content-Type: application/json'.",
        )
    text = unpacked(body, encoding_of(request), MAX_BYTES)
    try:
        return msgspec.json.decode(text or b"{}", type=kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        field = path.strip("`").rpartition("`")[2] or "$"  # of a key: "`key` in `$.x`"
        if "unknown field" in what and field == "$":
            what += f"; there are {', '.join(getattr(kind, '__struct_fields__', ()))}"
        raise Problem(400, f"At {field}: {what}.", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"The body is not JSON: {error}.") from None


def depth(body: bytes) -> int:
    """Return how deep ``body`` is nested, up to where it is JSON."""
    brackets = _TEXT.sub(b"", body).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_DEPTH_OF.__getitem__, brackets)), default=0)
