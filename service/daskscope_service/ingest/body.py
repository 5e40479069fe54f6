"""Reads a request's body, bounded before and after decompression."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from flask import Request

from daskscope_service.problems import Problem

#: What is read and thrown away of a refused body, so that the sender can read the answer. Beyond
#: it the connection breaks, which is what a sender of that much gets.
_DRAIN_BYTES = 64 * 1024 * 1024
_CHUNK = 64 * 1024

#: Bodies above this are decoded one at a time: a body may be made so that what is decoded of it
#: takes forty times its bytes.
_LARGE_BYTES = 1024 * 1024
_one_large = threading.Lock()

_GZIP = 16 + zlib.MAX_WBITS


def receive(request: Request, limit: int) -> bytes:
    """Return the body of ``request`` as it was sent.

    Raises
    ------
    Problem
        413 for more than ``limit`` bytes, 415 for an encoding other than gzip.
    """
    encoding = _encoding(request)
    if encoding not in ("identity", "gzip", ""):
        raise Problem(
            415,
            f"Content-Encoding {encoding!r} is not understood; send gzip, or none.",
            headers={"Accept-Encoding": "gzip"},
        )
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    body = _read(request, limit + 1)
    if len(body) > limit:
        raise _too_large(limit)
    return body


@contextmanager
def unpacked(request: Request, body: bytes, limit: int) -> Iterator[bytes]:
    """The ``body`` that :func:`receive` returned, decompressed. Decode it within.

    Raises
    ------
    Problem
        413 for more than ``limit`` bytes, 400 for gzip that is broken or cut off.
    """
    text = _gunzip(body, limit) if _encoding(request) == "gzip" else body
    with _one_large if len(text) > _LARGE_BYTES else nullcontext():
        yield text


def drain(request: Request) -> None:
    """Read what is left of the body and drop it: an answer before that breaks the connection."""
    left = _DRAIN_BYTES
    while left > 0 and (chunk := request.stream.read(_CHUNK)):
        left -= len(chunk)


def _read(request: Request, most: int) -> bytes:
    # One read may return less than there is. Room is made for all that is asked for.
    length = request.content_length
    stream, at_once = request.stream, most if length is None else min(most, length)
    chunks: list[bytes] = []
    while most > 0 and (chunk := stream.read(min(at_once, most))):
        chunks.append(chunk)
        most -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _encoding(request: Request) -> str:
    return request.headers.get("Content-Encoding", "identity").strip().lower()


def _gunzip(body: bytes, limit: int) -> bytes:
    unzip = zlib.decompressobj(_GZIP)
    try:
        # Stops by itself at one byte too many: a bomb costs no more memory than that.
        text = unzip.decompress(body, limit + 1)
    except zlib.error as error:
        raise Problem(400, f"The body is not gzip, as Content-Encoding says: {error}.") from None
    if len(text) > limit:
        raise _too_large(limit)
    if not unzip.eof or unzip.unused_data:
        raise Problem(400, "The gzip body is cut off, or something follows its end.")
    return text


def _too_large(limit: int) -> Problem:
    return Problem(
        413, f"The body is larger than {limit} bytes after decompression; send less at a time."
    )
