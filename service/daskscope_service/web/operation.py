"""Declares the parameters, body and answer of an API operation, to check and to document them.

A view under ``/api/v1`` is written::

    @blueprint.post("/things")
    @require("admin")
    @answers(Thing, body=NewThing, statuses=(201,))
    def make_thing(body: NewThing) -> Item:
        \"""Make a thing.

        The rest of the docstring is its description.
        \"""

``/api/v1/openapi.json`` then contains it. The types are any that msgspec supports: a TypedDict, a
dataclass, a Struct. A view that reads and writes bodies itself uses :func:`describes` instead.
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
    """The OpenAPI description of a view, beside its address, its docstring and its token scope.

    ``answer`` and ``body`` are types by media type; None stands for a format that is not described.
    ``problems`` are error statuses that do not follow from the other fields. ``checked``: the
    decorator :func:`answers` checks the request and makes the answer.
    """

    answer: Mapping[str, Any]
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    statuses: tuple[int, ...] = (200,)
    problems: tuple[int, ...] = ()
    checked: bool = False


def describes(operation: Operation) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Describe a view in the OpenAPI document. The view itself must check what is described."""

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
    """Send what a view returns as JSON of the type ``kind``; send no body if ``kind`` is None.

    Fields that ``kind`` lacks are left out. Seconds since the Unix epoch become ISO 8601 times if
    ``kind`` has a datetime there. If ``body`` is a type, the view gets the request's body as the
    argument ``body``. The status is the first of ``statuses``, unless the view returns a pair of
    value and status. Answers to GET have an ETag.

    Raises
    ------
    Problem
        400 for a parameter that is not in ``parameters``, 406 if the client does not accept JSON,
        and what :func:`~daskscope_service.web.body.json_body` raises.
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
            # msgspec inspects a type at its first use. If two threads use it for the first time at
            # the same moment, one of them may see a half-finished result, and the process crashes.
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
            answer = view(*args, **kwargs)
            answer, status = answer if isinstance(answer, tuple) else (answer, statuses[0])
            if kind is None:
                return Response(status=status)
            return _answer(msgspec.convert(answer, kind, strict=False), status)

        describes(operation)(answered)
        return answered

    return decorate


def _answer(answer: Any, status: int) -> Response:
    content = _encoder.encode(answer)
    response = Response(content, status, content_type=JSON)
    if request.method in ("GET", "HEAD"):
        response.set_etag(hashlib.blake2b(content, digest_size=16).hexdigest())
        # A cache must ask each time whether the answer is still valid, and may not share it.
        response.headers["Cache-Control"] = "private, no-cache"
        response.vary.update(("Authorization", "Cookie"))
        response.make_conditional(request)
    return response
