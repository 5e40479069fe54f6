"""Fixtures of the service's tests. What has to do with SQL runs on both kinds of database."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from daskscope import session
from daskscope_service.db import key_register, schema
from daskscope_service.db.engine import alone, open_database, upgrade_database, writing
from daskscope_service.settings import Settings
from tests import sqlite_template
from tests.postgresql import PostgresServer, find_binaries
from tests.service_process import ServiceProcess

#: Makes a database and returns its address: "" for SQLite, which is made where its folder is.
NewDatabase = Callable[[], str]


@contextmanager
def standstill(engine: Engine) -> Iterator[None]:
    """Let no one else write meanwhile, as if the disk stood still. Reading goes on."""
    with writing(engine) as connection:  # which locks all of SQLite
        if engine.dialect.name == "postgresql":
            names = ", ".join(f'"{name}"' for name in schema.metadata.tables)
            connection.execute(text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))
        yield


@pytest.fixture(scope="module", autouse=True)
def _time_for_goodbyes() -> Iterator[None]:
    """Let clusters that close here wait for the service longer than anyone's: it does answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "CLOSE_DEADLINE", 30.0)
        patch.setattr(session, "SPOOL_AFTER", 25.0)
        yield


@pytest.fixture(scope="session")
def postgresql_binaries() -> Path:
    """The folder of an installed PostgreSQL server."""
    binaries = find_binaries()
    if binaries is None:
        why = "no PostgreSQL server is installed (Debian's package postgresql)"
        if "CI" in os.environ:
            pytest.fail(why)
        pytest.skip(why)
    return binaries


@pytest.fixture(scope="session")
def postgresql(postgresql_binaries: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with PostgresServer(postgresql_binaries) as server:
        yield server


@pytest.fixture(scope="session")
def template(postgresql: PostgresServer) -> str:
    """The name of a database with all tables: to copy it is quicker than to apply revisions."""
    name = postgresql.create()
    upgrade_database(Settings(database_url=postgresql.url(name)))
    return name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what has to do with SQL on both kinds of database."""
    if "database_kind" in metafunc.fixturenames:
        same_on_both = metafunc.definition.get_closest_marker("sqlite") is not None
        kinds = ["sqlite"] if same_on_both else ["sqlite", "postgresql"]
        metafunc.parametrize("database_kind", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def new_database(database_kind: str, request: pytest.FixtureRequest) -> NewDatabase:
    """Makes databases with all tables."""
    if database_kind == "sqlite":
        return lambda: ""
    server: PostgresServer = request.getfixturevalue("postgresql")
    template: str = request.getfixturevalue("template")
    return lambda: server.url(server.create(template))


@pytest.fixture(scope="session")
def empty_database(database_kind: str, request: pytest.FixtureRequest) -> NewDatabase:
    """Makes databases without tables."""
    if database_kind == "sqlite":
        return lambda: ""
    server: PostgresServer = request.getfixturevalue("postgresql")
    return lambda: server.url(server.create())


@pytest.fixture
def engine(tmp_path: Path, new_database: NewDatabase) -> Iterator[Engine]:
    """A database for one test alone."""
    settings = Settings(data_dir=tmp_path / "data", database_url=new_database())
    if not settings.database_url:
        sqlite_template.copy_to(settings.data_dir)
    engine = open_database(settings)
    with alone(engine) as connection:
        key_register.check(connection)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def _shared_services() -> Iterator[tuple[dict[str, ServiceProcess], ExitStack]]:
    """The shared services by kind of database. It has no parameter of its own: pytest ends a
    fixture whenever its parameter changes, which is twice in each file.
    """
    with ExitStack() as ends:
        yield {}, ends


@pytest.fixture(scope="session")
def shared_service(
    tmp_path_factory: pytest.TempPathFactory,
    database_kind: str,
    new_database: NewDatabase,
    _shared_services: tuple[dict[str, ServiceProcess], ExitStack],
) -> ServiceProcess:
    """One service for all tests that leave it as it was: each works in a workspace of its own."""
    started, ends = _shared_services
    if database_kind not in started:
        data_dir = tmp_path_factory.mktemp("service")
        service = ServiceProcess(
            data_dir,
            database_url=new_database(),
            notify_networks=("127.0.0.0/8",),  # where tests' own webhooks listen
        )
        started[database_kind] = ends.enter_context(service)
    return started[database_kind]


@pytest.fixture(scope="module")
def quick_service(
    tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase
) -> Iterator[ServiceProcess]:
    """A service for all tests of a file that wait for its work in the background.

    A file whose fixtures use the shared service has this one in its place by a fixture of the same
    name.
    """
    with ServiceProcess(
        tmp_path_factory.mktemp("quick"),
        database_url=new_database(),
        quick=True,
        notify_networks=("127.0.0.0/8",),
    ) as service:
        yield service


@pytest.fixture
def service(tmp_path: Path, new_database: NewDatabase) -> Iterator[ServiceProcess]:
    """A service for one test alone, which may end it."""
    with ServiceProcess(tmp_path / "data", database_url=new_database()) as service:
        yield service


@pytest.fixture
def local_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service for one test alone, on SQLite: for what is the same on both, or SQLite's alone."""
    with ServiceProcess(tmp_path / "data") as service:
        yield service
