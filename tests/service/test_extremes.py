"""Whatever clusters sent, every page, file and list answers.

All addresses are those of the application's own map of routes, and what its pages link to.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, Phase, given, settings
from sqlalchemy import Engine

from daskscope.protocol import Heartbeat, encode
from daskscope_service.accounts import sessions, tokens
from daskscope_service.application import close_app, create_app
from daskscope_service.db.engine import upgrade_database, writing
from daskscope_service.ingest import heartbeat
from daskscope_service.ingest.correction import Corrected
from daskscope_service.settings import Settings
from tests.service.conftest import NewDatabase
from tests.service.extremes import CLUSTERS, COMPUTATIONS, FINGERPRINT, PROFILE, beats

#: Addresses that tell nothing of what clusters sent, and change who is signed in or ask elsewhere.
_ELSEWHERE = ("/static", "/sign-", "/activate", "/invitation", "/api/v1/openapi.json", "/metrics")

#: The most that pages link to and is asked for, of one example.
_MOST_LINKS = 40

examples = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],  # to find a smaller example would take minutes
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Flask]:
    chosen = Settings(data_dir=Path(tmp_path_factory.mktemp("data")), database_url=new_database())
    upgrade_database(chosen)
    app = create_app(chosen)
    yield app
    close_app(app)


def sign_in(engine: Engine, client: FlaskClient, workspace: str) -> None:
    """Make ``client`` an owner's browser."""
    with writing(engine) as connection:
        session = sessions.start(connection, workspace=workspace, role="owner")
    client.set_cookie(sessions.COOKIE, session)
    assert client.get("/settings/workspace").status_code == 200


def sent(app: Flask, *some: Heartbeat) -> FlaskClient:
    """Send ``some`` beats to a workspace of its own; return who is signed in there."""
    engine: Engine = app.extensions["daskscope.engine"]
    workspace = f"w-{uuid.uuid4().hex[:8]}"
    token = tokens.create(engine, workspace=workspace, label="test", scopes=["ingest"])
    client = app.test_client()
    for beat in some:
        answer = client.post(
            "/api/v1/heartbeats",
            data=encode(beat),
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 200, answer.text
    sign_in(engine, client, workspace)
    return client


def addresses(app: Flask) -> Iterator[str]:
    """Return the address of everything that can be read."""
    values: dict[str, Any] = {
        "cluster_id": CLUSTERS[0],
        "computation_id": COMPUTATIONS[0],
        "fingerprint": FINGERPRINT,
        "profile_id": PROFILE,
    }
    with app.test_request_context():
        for rule in app.url_map.iter_rules():
            if "GET" in (rule.methods or ()) and not rule.rule.startswith(_ELSEWHERE):
                yield app.url_for(
                    rule.endpoint, **{name: values.get(name, "x") for name in rule.arguments}
                )


def links(page: str) -> Iterator[str]:
    """Return what a page links to by other parameters of an address: orders, times, next pages."""
    for found in re.findall(r'href="(/[^"#]*\?[^"#]*)', page):
        if not found.startswith(_ELSEWHERE):
            yield unescape(found)


def broken(app: Flask, client: FlaskClient) -> list[str]:
    """Return what does not answer."""
    wrong: list[str] = []
    linked: dict[str, str] = {}
    for address in addresses(app):
        answer = client.get(address)
        if answer.status_code >= 500:
            wrong.append(f"{address}: {answer.status_code}")
        if answer.mimetype == "text/html":
            for link in links(answer.text):
                # One of each kind: by its path and the names of its parameters.
                linked.setdefault(re.sub(r"=[^&]{9,}", "=", link), link)
    for link in list(linked.values())[:_MOST_LINKS]:
        answer = client.get(link)
        if answer.status_code >= 500:
            wrong.append(f"{link}: {answer.status_code}")
    return wrong


def check_sent(app: Flask, first: Heartbeat, second: Heartbeat) -> None:
    assert broken(app, sent(app, first, second)) == []


def check_stored_before(
    app: Flask, monkeypatch: pytest.MonkeyPatch, first: Heartbeat, second: Heartbeat
) -> None:
    by_body = {encode(beat): beat for beat in (first, second)}
    with monkeypatch.context() as patch:
        patch.setattr(heartbeat, "parse", lambda body, now: Corrected(by_body[body]))
        client = sent(app, first, second)
    assert broken(app, client) == []


@settings(examples, max_examples=2)
@given(first=beats(), second=beats())
def test_every_page_answers_whatever_clusters_send(
    app: Flask, first: Heartbeat, second: Heartbeat
) -> None:
    check_sent(app, first, second)


@settings(examples, max_examples=2)
@given(first=beats(wide=True), second=beats(wide=True))
def test_every_page_answers_whatever_was_stored_before_there_were_bounds(
    app: Flask, monkeypatch: pytest.MonkeyPatch, first: Heartbeat, second: Heartbeat
) -> None:
    check_stored_before(app, monkeypatch, first, second)


@pytest.mark.slow
@settings(examples, max_examples=20)
@given(first=beats(), second=beats())
def test_every_page_answers_whatever_clusters_send_at_length(
    app: Flask, first: Heartbeat, second: Heartbeat
) -> None:
    check_sent(app, first, second)


@pytest.mark.slow
@settings(examples, max_examples=20)
@given(first=beats(wide=True), second=beats(wide=True))
def test_every_page_answers_whatever_was_stored_before_at_length(
    app: Flask, monkeypatch: pytest.MonkeyPatch, first: Heartbeat, second: Heartbeat
) -> None:
    check_stored_before(app, monkeypatch, first, second)
