"""A JSON body, checked against what it should hold."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from flask import request

from daskscope_service.web.body import encoding_of, receive, unpacked
from daskscope_service.web.problems import Problem

T = TypeVar("T")

#: What people and programs say in one request is short.
MAX_BYTES = 64 * 1024


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
    with unpacked(body, encoding_of(request), MAX_BYTES) as text:
        try:
            return msgspec.json.decode(text or b"{}", type=kind)
        except msgspec.ValidationError as error:
            what, _, path = str(error).partition(" - at ")
            field = path.strip("`").rpartition("`")[2] or "$"  # of a key: "`key` in `$.x`"
            raise Problem(400, f"At {field}: {what}.", field=field) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Problem(400, f"The body is not JSON: {error}.") from None
