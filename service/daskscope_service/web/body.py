"""Reads request bodies of limited size, and decodes JSON to a type.

The size is checked before and after decompression. The JSON decoder recurses for each nested object
and array. Before Python 3.13 stops the recursion, the thread's stack may overflow, which ends the
process. Therefore callers check :func:`depth` first where bodies may be large.
"""

from __future__ import annotations

import re
import zlib
from itertools import accumulate
from typing import IO, TypeVar

import msgspec
from flask import Request, request

from daskscope_service.web.problems import Problem

#: The supported values of Content-Encoding.
ENCODINGS = frozenset({"", "identity", "gzip"})

_GZIP = 16 + zlib.MAX_WBITS

#: The largest JSON body of :func:`json_body`, in bytes.
MAX_BYTES = 64 * 1024

# A JSON string. It also matches a string without an end: otherwise the search would start again at
# each quotation mark in it.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{[]}"))
_DEPTH_OF = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}

T = TypeVar("T")


def receive(request: Request, limit: int) -> bytes:
    """Return the body of ``request`` as it was sent, still compressed.

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
    # The limit for forms must not apply: this function checks the size itself.
    request.max_content_length = 2 * limit
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
    """Return the ``body`` decompressed; None if it has more than ``most`` bytes after that.

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
    """Return the content encoding of ``request``, in lower case; it may be an unsupported one."""
    return request.headers.get("Content-Encoding", "identity").strip().lower()


def read(stream: IO[bytes], length: int | None, most: int) -> bytes:
    """Return at most ``most`` bytes of ``stream``, whose Content-Length is ``length``."""
    # A read allocates as many bytes as it is asked for, so ask for no more than the length. It may
    # return fewer.
    at_once = most if length is None else min(most, length)
    chunks: list[bytes] = []
    while most > 0 and (chunk := stream.read(min(at_once, most))):
        chunks.append(chunk)
        most -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _gunzip(body: bytes, limit: int) -> bytes:
    unzip = zlib.decompressobj(_GZIP)
    try:
        # zlib stops at one byte beyond the limit, so a decompression bomb needs no more memory.
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
        413,
        f"The body is larger than {limit} bytes, compressed or decompressed; send less at once.",
    )


def json_body(kind: type[T]) -> T:
    """Return the body of the request as a ``kind``, a msgspec struct; an empty body as ``{}``.

    Raises
    ------
    Problem
        413: too large. 415: not sent as JSON. 400: not JSON, or a field is missing, unknown or
        not valid; ``field`` names it as a JSON path.
    """
    body = receive(request, MAX_BYTES)
    if body and request.mimetype != "application/json":
        # A form on another site can send other content types, but not this one.
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
        # If a key of a dictionary is not valid, msgspec writes "`key` in `$.x`".
        field = path.strip("`").rpartition("`")[2] or "$"
        if "unknown field" in what and field == "$":
            what += f"; there are {', '.join(getattr(kind, '__struct_fields__', ()))}"
        raise Problem(400, f"At {field}: {what}.", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"The body is not JSON: {error}.") from None


def depth(body: bytes) -> int:
    """Return how deeply the objects and arrays in ``body`` are nested.

    If the body is not valid JSON, the number is right up to the first error.
    """
    brackets = _TEXT.sub(b"", body).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_DEPTH_OF.__getitem__, brackets)), default=0)
