"""Declares what an API operation takes and answers, for its checks and its documentation.

A view under ``/api/v1`` is written::

    @blueprint.post("/things")
    @require("admin")
    @answers(Thing, body=NewThing, statuses=(201,))
    def make_thing(body: NewThing) -> Item:
        \"""Make a thing.

        The rest of the docstring is its description.
        \"""

and stands in ``/api/v1/openapi.json`` by that. Types are what msgspec knows: a TypedDict, a
dataclass, a Struct. What reads and answers bodies in its own way says :func:`describes` instead.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import msgspec
from flask import Response, request

from daskscope_service.web.body import json_body
from daskscope_service.web.parameters import Parameter, refuse_unknown
from daskscope_service.web.problems import Problem

JSON = "application/json"

P = ParamSpec("P")
R = TypeVar("R")

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Operation:
    """What the document says of a view beside its address, its docstring and its scope.

    ``answer`` and ``body`` are types by media type; a type of None is a format of its own.
    ``problems`` are statuses beyond those that follow from the rest. ``checked`` says that
    :func:`answers` looks at the request and makes the answer.
    """

    answer: Mapping[str, Any]
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    statuses: tuple[int, ...] = (200,)
    problems: tuple[int, ...] = ()
    checked: bool = False


def describes(operation: Operation) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Put a view into the document, and leave it to do what that says."""

    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        view.__dict__["operation"] = operation  # functools.wraps passes it on
        return view

    return decorate


def answers(
    kind: Any,
    *parameters: Parameter,
    body: Any = None,
    statuses: tuple[int, ...] = (200,),
    problems: tuple[int, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Response]]:
    """Answer with what a view returns, as JSON of the type ``kind``; with no body where it is None.

    Fields that ``kind`` does not have are left out; numbers of seconds since the Unix epoch become
    times. Of the query only ``parameters`` are let through. With a type ``body``, the view gets the
    request's body as the argument of that name. It is answered with the first of ``statuses``,
    unless the view returns a pair of value and status. A read has an ETag.

    Raises
    ------
    Problem
        400 for other parameters, 406 where JSON is not accepted; for a body, what
        :func:`~daskscope_service.api.body.json_body` raises.
    """
    operation = Operation(
        answer={} if kind is None else {JSON: kind},
        parameters=parameters,
        body={} if body is None else {JSON: body},
        statuses=statuses,
        problems=problems,
        checked=True,
    )

    for part in (kind, body):
        if part is not None:
            # What msgspec knows of a type it learns at the first use; if two threads use it for the
            # first time at once, one of them may find half of that, and the process ends.
            msgspec.json.Decoder(part)

    def decorate(view: Callable[..., Any]) -> Callable[..., Response]:
        @functools.wraps(view)
        def answered(*args: Any, **kwargs: Any) -> Response:
            accepted = request.accept_mimetypes
            if kind is not None and accepted and not accepted.best_match([JSON]):
                raise Problem(
                    406, f"Accept is {accepted}, which excludes {JSON}, the only format here."
                )
            refuse_unknown(*(parameter.name for parameter in parameters))
            if body is not None:
                kwargs["body"] = json_body(body)
            found = view(*args, **kwargs)
            found, status = found if isinstance(found, tuple) else (found, statuses[0])
            if kind is None:
                return Response(status=status)
            return _answer(msgspec.convert(found, kind, strict=False), status)

        describes(operation)(answered)
        return answered

    return decorate


def _answer(found: Any, status: int) -> Response:
    content = _encoder.encode(found)
    response = Response(content, status, content_type=JSON)
    if request.method in ("GET", "HEAD"):
        response.set_etag(hashlib.blake2b(content, digest_size=16).hexdigest())
        # Whoever keeps it asks each time whether it still holds, and gives it to no one else.
        response.headers["Cache-Control"] = "private, no-cache"
        response.vary.update(("Authorization", "Cookie"))
        response.make_conditional(request)
    return response
