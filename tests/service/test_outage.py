"""A PostgreSQL server that goes and comes back: told as such, and nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import text

from daskscope_service.db.engine import open_database, upgrade_database
from daskscope_service.settings import Settings
from tests.patience import wait_until
from tests.postgresql import PostgresServer, find_binaries
from tests.service.beats import make_beat, post
from tests.service_process import ServiceProcess


@pytest.fixture(scope="module")
def server(postgresql: PostgresServer) -> Iterator[PostgresServer]:
    """A server for these tests alone: who ends it starts it again."""
    binaries = find_binaries()
    assert binaries is not None  # or the fixture above had skipped the test
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture(scope="module")
def original(server: PostgresServer) -> str:
    """The name of a database with all tables."""
    name = server.create()
    upgrade_database(Settings(database_url=server.url(name)))
    return name


@pytest.fixture
def url(server: PostgresServer, original: str) -> str:
    """A database with all tables, for one test alone."""
    return server.url(server.create(original))


def test_while_the_server_is_away_503_and_then_on_as_before(
    tmp_path: Path, server: PostgresServer, url: str
) -> None:
    with ServiceProcess(tmp_path, database_url=url) as service:
        token = service.token()
        headers = {"Authorization": f"Bearer {token}"}
        before, after = make_beat(), make_beat()

        def read() -> requests.Response:
            return requests.get(f"{service.url}/api/v1/clusters", headers=headers, timeout=30)

        assert post(service.url, token, before).ok
        assert read().ok
        server.stop("QUIT")  # as in a crash
        for _ in range(5):
            for answer in (post(service.url, token, make_beat()), read()):
                assert answer.status_code == 503
                assert answer.headers["Retry-After"] == "5"
                assert answer.headers["Content-Type"] == "application/problem+json"

        server.start()
        assert post(service.url, token, after).ok
        ids = {item["id"] for item in read().json()["items"]}
        assert ids == {before.cluster.id, after.cluster.id}
        assert "Traceback" not in service.output


def test_a_server_that_is_gone_without_a_word_is_noticed_soon(url: str) -> None:
    def parameters(url: str) -> dict[str, str]:
        engine = open_database(Settings(database_url=url))
        try:
            with engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                found: dict[str, str] = driver.info.get_parameters()
                return found
        finally:
            engine.dispose()

    usual, own = parameters(url), parameters(f"{url}&keepalives_idle=60")
    idle, interval, count = (
        int(usual[f"keepalives_{one}"]) for one in ("idle", "interval", "count")
    )
    assert idle + interval * count <= 30
    assert int(usual["tcp_user_timeout"]) <= 30_000
    assert own["keepalives_idle"] == "60"


def test_while_the_server_may_only_be_read_writing_is_refused_for_now(
    tmp_path: Path, url: str
) -> None:
    with ServiceProcess(tmp_path, database_url=url) as service:
        token = service.token()
        assert post(service.url, token, make_beat()).ok
        with service.engine.begin() as connection:
            name = connection.engine.url.database
            connection.execute(
                text(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            )
        with service.engine.begin() as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                     " WHERE application_name = 'daskscope' AND pid <> pg_backend_pid()")
            )  # fmt: skip
        headers = {"Authorization": f"Bearer {token}"}
        lists = f"{service.url}/api/v1/clusters"
        # The first one may still find a connection that was ended.
        wait_until(lambda: requests.get(lists, headers=headers, timeout=30).ok)
        for _ in range(3):
            attempt = requests.post(
                f"{service.url}/sign-in", data={"name": "ada", "password": "x" * 12}, timeout=30
            )
            assert attempt.status_code == 503
            assert post(service.url, token, make_beat()).status_code == 503
        assert "Traceback" not in service.output
