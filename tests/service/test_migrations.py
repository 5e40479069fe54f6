"""The schema's revisions: what they make, what they keep, and who may apply them."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import requests
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    create_engine,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

from daskscope.errors import ConfigurationError
from daskscope_service.application import close_app, create_app
from daskscope_service.db import migrations, revisions, schema
from daskscope_service.db.engine import (
    database_position,
    open_database,
    sqlite_file,
    upgrade_database,
    writing,
)
from daskscope_service.services import services
from daskscope_service.settings import Settings
from tests.ports import free_port
from tests.postgresql import PostgresServer
from tests.service.conftest import NewDatabase
from tests.service.revisions.r0001 import SECRET
from tests.service.revisions.r0005 import KEY
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess

NEWEST = revisions.known()[-1]


@pytest.fixture
def settings(tmp_path: Path, empty_database: NewDatabase) -> Settings:
    """A database that is not there yet, or empty."""
    return Settings(data_dir=tmp_path / "data", database_url=empty_database(), code_keys=(KEY,))


def options(settings: Settings) -> list[object]:
    return ["--data-dir", settings.data_dir, "--database-url", settings.database]


def make(settings: Settings, revision: str) -> None:
    """Make the database as it was with ``revision``, full of that one's rows."""
    upgrade_database(settings, to=revision)
    fill(settings, revision)


def fill(settings: Settings, revision: str) -> None:
    with raw(settings) as connection:
        tables = MetaData()
        tables.reflect(connection)
        filled = rows_of(revision)
        assert set(filled) == set(tables.tables) - {"alembic_version"}, "a table without rows"
        for name, rows in filled.items():
            for row in rows:
                connection.execute(insert(tables.tables[name]).values(row))


def rows_of(revision: str) -> dict[str, list[dict[str, Any]]]:
    module = importlib.import_module(f"tests.service.revisions.r{revision}")
    rows: dict[str, list[dict[str, Any]]] = module.ROWS
    return rows


@contextmanager
def raw(settings: Settings) -> Iterator[Connection]:
    """A transaction on the database, whatever its revision."""
    settings.data_dir.mkdir(exist_ok=True)
    engine = create_engine(settings.database)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def next_revision(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH that has daskscope know one revision more: it makes a table."""
    folder = tmp_path / "next"
    shutil.copytree(Path(migrations.__file__).parent, folder / "migrations")
    number = f"{int(NEWEST) + 1:04}"
    (folder / "migrations" / "versions" / f"{number}_later.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        f"revision, down_revision = {number!r}, {NEWEST!r}\n"
        "def upgrade():\n"
        "    op.create_table('later', sa.Column('id', sa.String, primary_key=True))\n"
        "    op.add_column('workspace', sa.Column('colour', sa.String))\n"
    )
    (folder / "sitecustomize.py").write_text(
        "from pathlib import Path\n"
        "from daskscope_service.db import revisions\n"
        f"revisions._FOLDER = Path({str(folder / 'migrations')!r})\n"
    )
    return folder


def test_the_revisions_make_what_the_schema_says(settings: Settings) -> None:
    upgrade_database(settings)
    engine = open_database(settings)
    with engine.connect() as connection:
        # What differs is what the next revision has to do. One index is SQLite's alone.
        context = MigrationContext.configure(connection)
        differs = [
            one
            for one in compare_metadata(context, schema.metadata)
            if (one[0], getattr(one[1], "name", None)) != ("add_index", "cluster_by_label")
            or context.dialect.name == "sqlite"
        ]
        assert differs == []
        made = beyond_alembic(connection)
    with writing(engine) as connection:
        found = MetaData()
        found.reflect(connection)
        found.drop_all(connection)
        schema.metadata.create_all(connection)
        assert made == beyond_alembic(connection)
    engine.dispose()


def beyond_alembic(connection: Connection) -> dict[str, Any]:
    """Return what Alembic does not compare: the order of keys, and options of tables."""
    look = inspect(connection)
    return {
        name: (look.get_pk_constraint(name)["constrained_columns"], look.get_table_options(name))
        for name in schema.metadata.tables
    }


def test_revisions_are_numbered_one_after_the_other() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    found = list(ScriptDirectory.from_config(config).walk_revisions())[::-1]
    assert [one.revision for one in found] == list(revisions.known())
    assert [one.revision for one in found] == [f"{n:04}" for n in range(1, len(found) + 1)]
    for one in found:
        assert Path(one.path).name.startswith(f"{one.revision}_")


@pytest.mark.parametrize("revision", [revisions.known()[0], NEWEST])
def test_a_database_filled_by_an_earlier_revision_is_upgraded_and_served(
    settings: Settings, revision: str
) -> None:
    make(settings, revision)
    with ServiceProcess(
        settings.data_dir, database_url=settings.database_url, code_keys=settings.code_keys
    ) as service:
        upgraded = f"The database had revision {revision}; now it has {NEWEST}."
        assert (upgraded in service.output) == (revision != NEWEST)
        for path, expected in ANSWERS:
            answer = requests.get(f"{service.url}{path}", headers=READER, timeout=30)
            assert answer.status_code == 200, answer.text
            assert expected in str(answer.json())
        check_that_rows_are_there(service.engine, revision)


READER = {"Authorization": f"Bearer dsk_aaaaaaaaaa_{SECRET}"}
ANSWERS = [
    ("/api/v1/clusters", "nightly"),
    ("/api/v1/computations", "c1"),
    ("/api/v1/exceptions", "no such day: ünïcode"),
    ("/api/v1/clusters/Scheduler-1/computations", "c1"),
    ("/api/v1/clusters/Scheduler-1/computations/c1", "load-1"),
    ("/api/v1/clusters/Scheduler-1/computations/c1", "load(day)"),
]


def check_that_rows_are_there(engine: Engine, revision: str) -> None:
    """Check that each row with which ``revision`` was filled is still there."""
    changed = (
        {schema.code.c.hash, schema.log_record.c.id} if revision < revisions.SEALED_SINCE else set()
    )
    with engine.connect() as connection:
        for name, rows in rows_of(revision).items():
            table = schema.metadata.tables[name]
            for row in rows:
                keys = [
                    column == row.get(column.name, "")  # part of the key since a later revision
                    for column in table.primary_key
                    if column not in changed
                ]
                count = select(func.count()).select_from(table).where(*keys)
                assert connection.execute(count).scalar() == 1, name


class Growing:
    """A database without rows, which is brought from one revision to the next, and copied."""

    def __init__(self, folder: Path, postgresql: PostgresServer | None) -> None:
        self._folder, self._postgresql = folder, postgresql
        self._at = ""

    def copy(self, data_dir: Path, revision: str) -> Settings:
        """Return a database of its own that has ``revision``."""
        if not self._at or self._at > revision:
            self._name = self._postgresql.create() if self._postgresql else ""
            self._settings = Settings(
                data_dir=Path(mkdtemp(dir=self._folder)),
                database_url=self._postgresql.url(self._name) if self._postgresql else "",
            )
        upgrade_database(self._settings, to=revision)
        self._at = revision
        if self._postgresql:
            url = self._postgresql.url(self._postgresql.create(self._name))
            return Settings(data_dir=data_dir, database_url=url, code_keys=(KEY,))
        copy = Settings(data_dir=data_dir, code_keys=(KEY,))
        data_dir.mkdir()
        shutil.copy(sqlite_file(self._settings), sqlite_file(copy))
        return copy


@pytest.fixture(scope="session")
def growing(
    tmp_path_factory: pytest.TempPathFactory, database_kind: str, request: pytest.FixtureRequest
) -> Growing:
    server = request.getfixturevalue("postgresql") if database_kind == "postgresql" else None
    return Growing(tmp_path_factory.mktemp("growing"), server)


@pytest.mark.slow
@pytest.mark.parametrize("revision", revisions.known()[1:-1])
def test_a_database_filled_by_a_revision_between_is_upgraded_and_read(
    growing: Growing, database_kind: str, revision: str, tmp_path: Path
) -> None:
    if database_kind == "postgresql" and int(revision) % 4:
        pytest.skip("each revision is applied here on the way from another; SQLite begins with all")
    settings = growing.copy(tmp_path / "data", revision)
    fill(settings, revision)
    before = upgrade_database(settings)
    assert (before.state, before.at) == ("older", revision)
    app = create_app(settings)
    for path, expected in ANSWERS:
        answer = app.test_client().get(path, headers=READER)
        assert answer.status_code == 200, answer.text
        assert expected in str(answer.json)
    check_that_rows_are_there(services(app).engine, revision)
    close_app(app)


def test_thread_seconds_of_clusters_that_are_there_are_summed_up(settings: Settings) -> None:
    make(settings, "0016")
    upgrade_database(settings)
    engine = open_database(settings)
    cluster = schema.cluster
    with engine.connect() as connection:
        query = select(
            cluster.c.worker_seconds, cluster.c.thread_seconds, cluster.c.thread_idle_seconds
        )
        rows = connection.execute(query).all()
    engine.dispose()
    assert rows
    for seconds, all_, idle in rows:
        assert (all_, idle) == (sum(seconds.values()), seconds["idle"])


def test_rows_that_a_number_from_far_ahead_froze_change_with_the_next_beat(
    settings: Settings,
) -> None:
    make(settings, "0023")
    before = int(time.time() * 1000)
    with raw(settings) as connection:
        tables = MetaData()
        tables.reflect(connection)
        frozen = [name for name, table in tables.tables.items() if "seq" in table.c]
        for name in frozen:
            connection.execute(update(tables.tables[name]).values(seq=2**63 - 1))
        connection.execute(update(tables.tables["cluster"]).values(seq=before))
    upgrade_database(settings)
    engine = open_database(settings)
    with engine.connect() as connection:
        for name in frozen:
            table = schema.metadata.tables[name]
            numbers = set(connection.execute(select(table.c.seq)).scalars())
            assert numbers == {before if name == "cluster" else 0}, name
    engine.dispose()


def test_a_fresh_database_has_the_default_workspace_alone(settings: Settings) -> None:
    assert upgrade_database(settings).state == "empty"
    assert upgrade_database(settings).state == "current"
    engine = open_database(settings)
    with engine.connect() as connection:
        found = connection.execute(select(schema.workspace.c.id)).scalars().all()
    engine.dispose()
    assert found == ["default"]


def test_processes_that_start_at_once_apply_the_revisions_once(settings: Settings) -> None:
    command = ["database", "upgrade", *options(settings)]
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda _: daskscope(*command), range(3)))
    assert [run.returncode for run in runs] == [0, 0, 0], [run.stderr for run in runs]
    told = sorted(run.stdout for run in runs)
    assert told[0].startswith(f"The database has revision {NEWEST}")
    assert told[1] == told[0]
    assert told[2] == f"The database was empty; now it has revision {NEWEST}.\n"


def test_an_upgrade_that_fails_half_way_leaves_the_database_as_it_was(
    settings: Settings, next_revision: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(settings, NEWEST)
    with raw(settings) as connection:  # the second of its statements will not do
        connection.execute(text("ALTER TABLE workspace ADD COLUMN colour VARCHAR"))
    monkeypatch.setattr(revisions, "_FOLDER", next_revision / "migrations")
    with pytest.raises(ConfigurationError, match="colour"):
        upgrade_database(settings)
    assert database_position(settings).at == NEWEST
    with raw(settings) as connection:
        assert not inspect(connection).has_table("later")


def test_a_newer_database_is_refused_and_both_revisions_named(settings: Settings) -> None:
    upgrade_database(settings)
    with raw(settings) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    done = daskscope("serve", "--port", free_port(), *options(settings))
    assert done.returncode == 1
    assert "revision 9999" in done.stderr
    assert f"up to {NEWEST}" in done.stderr
    assert "Traceback" not in done.stderr
    for use in (open_database, upgrade_database):
        with pytest.raises(ConfigurationError, match="revision 9999"):
            use(settings)
    assert database_position(settings).at == "9999"


def test_a_database_from_before_the_revisions_is_refused_and_left_alone(
    settings: Settings,
) -> None:
    with raw(settings) as connection:
        schema.metadata.create_all(connection)
    done = daskscope("serve", "--port", free_port(), *options(settings))
    assert done.returncode == 1
    assert "before the first release" in done.stderr
    assert database_position(settings).state == "unnumbered"


def test_serve_applies_what_is_missing_unless_it_is_told_to_refuse(
    settings: Settings, next_revision: Path
) -> None:
    make(settings, NEWEST)
    path = os.pathsep.join([str(next_revision), os.environ.get("PYTHONPATH", "")])
    number = f"{int(NEWEST) + 1:04}"
    where = options(settings)
    done = daskscope(
        "serve", "--port", free_port(), *where, PYTHONPATH=path, DASKSCOPE_MIGRATE="refuse"
    )
    assert done.returncode == 1
    assert f"has revision {NEWEST} and this daskscope needs {number}" in done.stderr
    assert "'daskscope database upgrade'" in done.stderr
    assert "Traceback" not in done.stderr
    assert database_position(settings).at == NEWEST

    done = daskscope("database", "upgrade", *where, PYTHONPATH=path)
    assert done.stdout == f"The database had revision {NEWEST}; now it has {number}.\n"
    assert database_position(settings).at == number


def test_a_command_makes_no_database_by_itself(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    with pytest.raises(ConfigurationError, match="'daskscope serve' or"):
        open_database(settings)
    done = daskscope("serve", "--port", free_port(), *options(settings), "--migrate", "refuse")
    assert "'daskscope database upgrade'" in done.stderr
    assert not settings.data_dir.exists()


def test_an_empty_database_is_told_from_one_that_is_ready(settings: Settings) -> None:
    with raw(settings) as connection:
        connection.execute(text("CREATE TABLE other (id INTEGER)"))
    where = options(settings)
    assert "is empty" in daskscope("database", "status", *where).stdout
    with pytest.raises(ConfigurationError, match="is empty"):
        open_database(settings)
    upgrade_database(settings)
    assert f"revision {NEWEST}" in daskscope("database", "status", *where).stdout


def test_a_database_that_cannot_hold_all_characters_is_refused(postgresql: PostgresServer) -> None:
    url = postgresql.url(postgresql.create(options="ENCODING LATIN1 LOCALE 'C'"))
    with pytest.raises(ConfigurationError, match=r"LATIN1.* --encoding UTF8"):
        upgrade_database(Settings(database_url=url))


def test_an_address_that_leads_nowhere_is_said_without_its_password(tmp_path: Path) -> None:
    for url, said in (
        (f"postgresql://me:secret@/x?host={tmp_path}", str(tmp_path)),
        ("mysql://me:secret@localhost/x", "for example postgresql://"),
        ("not a valid database address", "for example postgresql://"),
    ):
        with pytest.raises(ConfigurationError) as error:
            open_database(Settings(database_url=url))
        assert said in str(error.value)
        assert "secret" not in str(error.value)
