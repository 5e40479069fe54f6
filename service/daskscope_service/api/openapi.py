"""``/api/v1/openapi.json``: the API as an OpenAPI 3.1 document, built from the routes.

Paths come from the routes, descriptions from the views' docstrings, types from the views'
declarations (:mod:`daskscope_service.web.operation`), and scopes from the decorators that check
them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec
from flask import Blueprint, Flask, current_app
from werkzeug.routing import Rule

from daskscope.protocol import is_time
from daskscope.version import __version__
from daskscope_service.accounts.sessions import COOKIE
from daskscope_service.web.operation import JSON, Operation, answers
from daskscope_service.web.problems import ProblemDocument

blueprint = Blueprint("openapi", __name__, url_prefix="/api/v1")

#: The paths in the document. ``/metrics`` is not among them: Prometheus' format describes itself.
PATHS = ("/api/v1/", "/v1/", "/healthz", "/readyz")

_PROBLEM = "application/problem+json"

_SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "dsk_…, created by 'daskscope token create'",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "session of a person who signed in on the pages; over HTTPS its name begins "
        "with __Host-",
    },
}

#: What each status of a problem means, in all operations.
_PROBLEMS = {
    400: "The request is invalid; detail says what is wrong.",
    401: "The token or session is missing, expired or revoked.",
    403: "The token or session does not allow this.",
    404: "The workspace has no such object.",
    406: "The Accept header excludes the only available format.",
    409: "The object's state does not allow this.",
    413: "The body is too large.",
    415: "The body's Content-Type or Content-Encoding is not supported.",
    429: "More data arrives than the service can write. Send it again after Retry-After.",
    503: "The service or its database is not available. Try again after Retry-After.",
}

_DESCRIPTION = """\
The API returns everything that the pages show. A token with the scope `read` can read all data of
one workspace.

Times are ISO 8601 in UTC, durations are seconds, sizes are bytes; null means that a value was not
measured or not sent. Later versions may add fields. Lists are paged, newest first: repeat the
request with `cursor` set to the `next` of the previous response, until `next` is null. Items that
arrive in between neither repeat nor hide others; only an exception that occurs again in between
moves to the beginning. Reads have an ETag: with If-None-Match the service answers 304 while nothing
has changed. An address takes a cluster's name in place of its id, if only one cluster has that
name (409 otherwise). Every error is a problem document (RFC 9457) whose `detail` says what would be
right.
"""


@blueprint.get("/openapi.json")
@answers(dict[str, Any])
def openapi() -> dict[str, Any]:
    """Answer with this document. It is the same for everyone, so it needs no token."""
    return document(current_app._get_current_object())  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def document(app: Flask) -> dict[str, Any]:
    """Return the document of ``app``; the same object each time."""
    views = [
        (rule, method.lower(), app.view_functions[rule.endpoint])
        for rule in sorted(app.url_map.iter_rules(), key=lambda rule: rule.rule)
        if rule.rule.startswith(PATHS)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})
    ]
    operations = [_said(view) for _, _, view in views]
    # Types that are sent and types that are answered may share a name, for example Cluster.
    sent, answered = _Schemas("Sent"), _Schemas("")
    for operation in operations:
        sent.add(operation.body.values())
        answered.add(operation.answer.values())
    answered.add([ProblemDocument])
    sent.make()
    answered.make()
    paths: dict[str, dict[str, Any]] = {}
    for (rule, method, view), operation in zip(views, operations, strict=True):
        path = re.sub("<(?:[^:>]*:)?([^>]*)>", r"{\1}", rule.rule)
        description = _Describer(rule, method, view, operation).describe(sent, answered)
        paths.setdefault(path, {})[method] = description
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "daskscope",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "BSD-3-Clause", "identifier": "BSD-3-Clause"},
        },
        "servers": [{"url": app.config["SETTINGS"].url}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted((sent.components | answered.components).items())),
            "responses": {
                f"Problem{status}": {
                    "description": text,
                    "content": {_PROBLEM: {"schema": answered.of(ProblemDocument)}},
                }
                for status, text in _PROBLEMS.items()
            },
            "securitySchemes": _SECURITY,
        },
    }


def _said(view: Callable[..., Any]) -> Operation:
    # A view without a declaration accepts and answers anything; a test reports such views.
    operation = view.__dict__.get("operation", Operation({JSON: dict[str, Any]}))
    assert isinstance(operation, Operation)
    return operation


def _may_be_empty(body: Any) -> bool:
    try:
        msgspec.json.decode(b"{}", type=body)
    except msgspec.ValidationError:
        return False
    return True


class _Schemas:
    """Types and their JSON schemas. ``components``: the schemas that have a name."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._types: dict[Any, dict[str, Any]] = {}
        self.components: dict[str, Any] = {}

    def add(self, types: Iterable[Any]) -> None:
        self._types |= {kind: {} for kind in types if kind is not None}

    def make(self) -> None:
        schemas, components = msgspec.json.schema_components(
            self._types, ref_template=f"#/components/schemas/{self._prefix}{{name}}"
        )
        self._types = dict(zip(self._types, schemas, strict=True))
        self.components = {f"{self._prefix}{name}": kind for name, kind in components.items()}
        for component in self.components.values():
            component |= {"description": _text(component.get("description", ""))}
            _name_times(component)

    def of(self, kind: Any) -> dict[str, Any]:
        return self._types[kind]

    def content(self, types: Mapping[str, Any]) -> dict[str, Any]:
        return {
            media: {} if kind is None else {"schema": self.of(kind)}
            for media, kind in types.items()
        }


def _text(docstring: str) -> str:
    return re.sub(":[a-z]+:`", "`", inspect.cleandoc(docstring).replace("``", "`"))


def _name_times(component: dict[str, Any]) -> None:
    # msgspec sets this format only for times that must have a time zone. All of our times have one.
    for name, schema in component.get("properties", {}).items():
        if is_time(name):
            for one in schema.get("anyOf", [schema]):
                if one.get("type") == "string":
                    one["format"] = "date-time"


@dataclass(frozen=True, slots=True)
class _Describer:
    """Describes one operation for the document."""

    rule: Rule
    method: str
    view: Callable[..., Any]
    operation: Operation

    def describe(self, sent: _Schemas, answered: _Schemas) -> dict[str, Any]:
        operation = self.operation
        summary, _, rest = _text(self.view.__doc__ or "").partition("\n\n")
        blueprint, _, _ = self.rule.endpoint.partition(".")
        described: dict[str, Any] = {
            "operationId": self.rule.endpoint.replace(".", "_"),
            "tags": [blueprint],
            "summary": " ".join(summary.split()),
            "parameters": list(self._parameters()),
            "responses": {
                str(status): self._answer(status, answered) for status in operation.statuses
            }
            | {
                str(status): {"$ref": f"#/components/responses/Problem{status}"}
                for status in sorted(self._problems())
            },
        }
        if self._is_conditional:
            described["responses"]["304"] = {"description": "If-None-Match names what there is."}
        if rest:
            described["description"] = rest
        if operation.body:
            described["requestBody"] = {
                "required": not operation.checked or not _may_be_empty(operation.body[JSON]),
                "content": sent.content(operation.body),
            }
        if self._scope is not None:
            described["security"] = [{"token": [self._scope]}]
            if (role := self.view.__dict__["least_role"]) is not None:
                described["security"].append({"session": [role]})
        return described

    @property
    def _scope(self) -> str | None:
        scope: str | None = self.view.__dict__.get("scope")
        return scope

    @property
    def _is_conditional(self) -> bool:
        return self.operation.checked and self.method == "get" and bool(self.operation.answer)

    def _parameters(self) -> Iterator[dict[str, Any]]:
        for name in sorted(self.rule.arguments):
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "string", "minLength": 1},
            }
        for parameter in self.operation.parameters:
            yield {
                "name": parameter.name,
                "in": "query",
                "description": parameter.description,
                "required": parameter.required,
                "schema": parameter.schema,
            }

    def _answer(self, status: int, answered: _Schemas) -> dict[str, Any]:
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if self.operation.answer:
            answer["content"] = answered.content(self.operation.answer)
        if self._is_conditional:
            answer["headers"] = {"ETag": {"required": True, "schema": {"type": "string"}}}
        return answer

    def _problems(self) -> set[int]:
        operation = self.operation
        problems = set(operation.problems)
        if self._scope is not None:
            problems |= {401, 403, 503}
        if self.rule.arguments:
            problems.add(404)
        if operation.checked:
            problems.add(400)
        if operation.checked and operation.answer:
            problems.add(406)
        if operation.body:
            problems |= {400, 413, 415}
        return problems
