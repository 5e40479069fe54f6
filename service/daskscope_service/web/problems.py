"""Errors as answers: problem documents (RFC 9457) for the API, a readable page for people."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import msgspec
from flask import Flask, Response, g, render_template, request
from sqlalchemy.exc import DataError, DBAPIError, InternalError, OperationalError
from werkzeug.exceptions import HTTPException
from werkzeug.http import HTTP_STATUS_CODES

from daskscope_service.db import time_limit
from daskscope_service.web.fields import Ambiguous, Missing, NameTaken, Unfit

_API_PATHS = ("/api/", "/v1/", "/healthz", "/readyz", "/metrics")

#: The media type of problem documents.
CONTENT_TYPE = "application/problem+json"

#: PostgreSQL's error code when it refuses to write in a read-only database.
_READ_ONLY = "25006"

logger = logging.getLogger(__name__)


class ProblemDocument(TypedDict):
    """What is wrong, where, and what would be right: RFC 9457.

    ``title`` is the same for every problem of a kind, ``detail`` is about this one. The service's
    log contains ``request_id``. ``field`` or ``parameter`` name what is not valid. ``reason`` is a
    short text for programs, which stays the same.
    """

    title: str
    status: int
    detail: str
    request_id: NotRequired[str]
    field: NotRequired[str]
    parameter: NotRequired[str]
    reason: NotRequired[str]


class Problem(Exception):
    """An error that the caller gets as the answer.

    Parameters
    ----------
    status
        The HTTP status.
    detail
        What is wrong, where, and what would be right. Shown to people.
    title
        The same for every problem of this kind. Default: the status in words.
    headers
        Added to the answer, for example ``Retry-After``.
    members
        Further members of the problem document, for example ``field``.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        title: str | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.title = title or HTTP_STATUS_CODES.get(status, "Error")
        self.headers = dict(headers or {})
        self.members = members


def install(app: Flask) -> None:
    """Make ``app`` answer every error with a problem document, or with a page for people."""
    app.register_error_handler(Problem, answer_problem)
    app.register_error_handler(Unfit, _answer_unfit)
    app.register_error_handler(NameTaken, _answer_taken)
    app.register_error_handler(Missing, _answer_missing)
    app.register_error_handler(Ambiguous, _answer_ambiguous)
    app.register_error_handler(HTTPException, _answer_http)
    app.register_error_handler(DataError, _answer_data)
    app.register_error_handler(OperationalError, _answer_outage)
    app.register_error_handler(InternalError, _answer_internal)
    app.register_error_handler(time_limit.TookTooLong, _answer_late)
    app.register_error_handler(Exception, _answer_unexpected)


def is_api(path: str) -> bool:
    """Return whether ``path`` is for programs, not for people."""
    return path.startswith(_API_PATHS)


def document(problem: Problem, request_id: str | None) -> bytes:
    """Return the problem document of ``problem``: a :class:`ProblemDocument` as JSON."""
    members = {"title": problem.title, "status": problem.status, "detail": problem.detail}
    if request_id is not None:
        members["request_id"] = request_id
    return msgspec.json.encode(members | problem.members)


def answer_problem(problem: Problem) -> Response:
    """Return ``problem`` as an answer: a problem document for programs, a page for people."""
    if is_api(request.path):
        response = Response(document(problem, g.get("request_id")), content_type=CONTENT_TYPE)
    else:
        page = render_template(
            "error.html", status=problem.status, title=problem.title, detail=problem.detail
        )
        response = Response(page, content_type="text/html; charset=utf-8")
    response.status_code = problem.status
    response.headers.update(problem.headers)
    return response


def _answer_unfit(error: Unfit) -> Response:
    return answer_problem(Problem(400, str(error), field=f"$.{error.field}"))


def _answer_taken(error: NameTaken) -> Response:
    return answer_problem(Problem(409, str(error), field="$.name"))


def _answer_missing(error: Missing) -> Response:
    hint = "" if is_api(request.path) else " Perhaps it belongs to another workspace."
    return answer_problem(Problem(404, f"{error}{hint}", title="Not found"))


def _answer_ambiguous(error: Ambiguous) -> Response:
    return answer_problem(Problem(409, str(error)))


def _answer_http(error: HTTPException) -> Response:
    status = error.code or 500
    if status < 400:  # Werkzeug's router raises redirects, too
        return error.get_response()  # type: ignore[return-value]
    dropped = {"content-type", "content-length"}
    headers = {k: v for k, v in error.get_headers() if k.lower() not in dropped}
    if status == 404 and request.url_rule is None:
        # The reason shows a client that it may be newer than this service.
        return answer_problem(
            Problem(
                404,
                f"There is no page or operation at {request.path[:200]}.",
                reason="no such address",
            )
        )
    return answer_problem(Problem(status, error.description or error.name, headers=headers))


def _answer_data(error: DataError) -> Response:
    if not _asks_for_nul():
        # The request is not the cause, but a stored value, or what a query computes from it.
        return _answer_unexpected(error)
    return answer_problem(
        Problem(
            400,
            "The request contains the character NUL, which the database cannot store; leave "
            "it out.",
        )
    )


def _asks_for_nul() -> bool:
    texts = [request.path, *request.args.values()]
    if request.mimetype == "application/json":
        texts.append(request.get_data(as_text=True).replace("\\u0000", "\0"))
    else:
        texts += request.form.values()
    return any("\0" in text for text in texts)


def _answer_late(_error: Exception) -> Response:
    logger.warning("the query of %s %s exceeded its time limit", request.method, _route())
    return answer_problem(
        Problem(
            503,
            f"The query took longer than {time_limit.SECONDS:.0f} s and was stopped. Choose a "
            "shorter time, or fewer rows.",
            headers={"Retry-After": "60"},
            reason="took too long",
        )
    )


def _answer_internal(error: InternalError) -> Response:
    # A read-only SQLite database raises OperationalError, so treat PostgreSQL's error likewise.
    if getattr(error.orig, "sqlstate", None) == _READ_ONLY:
        return _answer_outage(error)
    return _answer_unexpected(error)


def _answer_outage(error: DBAPIError) -> Response:
    if time_limit.is_over():
        return _answer_late(error)
    if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        # An invalid query. PostgreSQL raises another class of error for it.
        return _answer_unexpected(error)
    # Log only the driver's error: the whole error contains the query with values from users.
    logger.error("%s %s failed: %s", request.method, _route(), error.orig)
    return answer_problem(
        Problem(
            503,
            "The database does not answer at the moment; try again.",
            headers={"Retry-After": "5"},
        )
    )


def _answer_unexpected(error: Exception) -> Response:
    logger.error("%s %s failed", request.method, _route(), exc_info=error)
    return answer_problem(
        Problem(
            500,
            "Something went wrong in the service. The operator finds the details in its log; "
            "try again.",
        )
    )


def _route() -> str:
    return request.url_rule.rule if request.url_rule is not None else "none"
