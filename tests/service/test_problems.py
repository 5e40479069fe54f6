"""What a value comes to that the database cannot hold, or that it holds and cannot work with."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy.exc import DataError

from daskscope_service.web import problems


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    """An application whose database refuses whatever it is asked."""
    app = Flask("problems")
    problems.install(app)

    @app.route("/api/v1/<path:rest>", methods=["GET", "POST"])
    def refuse(rest: str) -> str:
        raise DataError("SELECT '*****'", None, ValueError("value out of range: *****"))

    return app.test_client()


ASKED_WITH_NUL: dict[str, dict[str, Any]] = {
    "in the path": {"path": "/api/v1/clusters/%00"},
    "in a parameter": {"path": "/api/v1/clusters?user=a%00"},
    "in JSON, escaped": {"path": "/api/v1/x", "data": '{"a": "\\u0000"}'},
    "in a form": {"path": "/api/v1/x", "data": {"a": "\0"}},
}


@pytest.mark.parametrize("where", ASKED_WITH_NUL)
def test_who_asks_with_what_no_database_holds_learns_what(
    client: FlaskClient, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = dict(ASKED_WITH_NUL[where])
    if isinstance(request.get("data"), str):
        request["content_type"] = "application/json"
    answer = client.open(method="POST", **request)
    assert answer.status_code == 400
    assert "NUL" in answer.get_json()["detail"]
    assert caplog.records == []  # it is their business


@pytest.mark.parametrize("path", ["/api/v1/clusters", "/api/v1/clusters?user=ada"])
def test_a_stored_row_that_breaks_a_query_is_the_operators_to_know(
    client: FlaskClient, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = client.get(path)
    assert answer.status_code == 500
    assert "out of range" not in answer.text  # nothing of the row
    assert "finds the details in its log" in answer.get_json()["detail"]
    [record] = caplog.records
    assert record.getMessage() == "GET /api/v1/<path:rest> failed"
    assert record.exc_info
