"""A backup made while the service works holds what was acknowledged, and can be put back."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest
import requests

from daskscope_service.db.keys import FILE
from tests.postgresql import PostgresServer, find_binaries
from tests.service.beats import full_beat, make_cluster, post
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess


class Load:
    """Sends full beats, each of a cluster of its own, until the end of the with-statement."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service
        self._token = service.token()
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self.acknowledged: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(3)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, number: int) -> None:
        """Return once so many more beats were acknowledged."""
        with self._changed:
            wanted = len(self.acknowledged) + number
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= wanted, 60)

    def _run(self, number: int) -> None:
        sent = 0
        while not self._stop.is_set():
            sent += 1
            id = f"load-{number}-{sent}"
            if post(self._service.url, self._token, full_beat(make_cluster(id))).ok:
                with self._changed:
                    self.acknowledged.append(id)
                    self._changed.notify_all()


def clusters_of(service: ServiceProcess, token: str) -> set[str]:
    found: set[str] = set()
    cursor: str | None = None
    while True:
        answer = requests.get(
            f"{service.url}/api/v1/clusters",
            params={"limit": "1000"} | ({"cursor": cursor} if cursor else {}),
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        ).json()
        found |= {item["id"] for item in answer["items"]}
        cursor = answer["next"]
        if cursor is None:
            return found


def test_a_backup_under_load_is_whole_and_is_served_again(
    local_service: ServiceProcess, tmp_path: Path
) -> None:
    backup, token = tmp_path / "backup.db", local_service.token()
    with Load(local_service) as load:
        load.wait_for(30)
        before = list(load.acknowledged)
        done = daskscope("database", "backup", backup, *local_service.database_options)
        assert done.returncode == 0, done.stderr
        load.wait_for(5)  # the service went on
    assert {file.name for file in tmp_path.glob("backup*")} == {"backup.db"}
    assert backup.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    where = ("--data-dir", tmp_path / "restored")
    done = daskscope("database", "restore", backup, *where)
    assert done.returncode == 0, done.stderr
    # The keys of users' code are kept apart.
    shutil.copy(local_service.data_dir / FILE, tmp_path / "restored")
    with ServiceProcess(tmp_path / "restored") as again:
        there = clusters_of(again, token)  # the tokens are those of the backup
        assert set(before) <= there
        assert post(again.url, token, full_beat(make_cluster("new"))).ok
        assert there | {"new"} == clusters_of(again, token)
    # What it was made of is as it was.
    assert backup.exists()


def test_the_wrong_folder_is_not_restored_to(local_service: ServiceProcess, tmp_path: Path) -> None:
    backup, elsewhere = tmp_path / "b.db", tmp_path / "elsewhere"
    assert daskscope("database", "backup", backup, *local_service.database_options).returncode == 0
    elsewhere.mkdir()
    done = daskscope("database", "restore", backup, "--replace", "--data-dir", elsewhere)
    assert done.returncode != 0
    assert "DASKSCOPE_DATA_DIR" in done.stderr
    assert not any(elsewhere.iterdir())


def test_a_database_that_is_there_is_kept_aside_and_not_while_it_is_in_use(
    local_service: ServiceProcess, tmp_path: Path
) -> None:
    backup, token, where = tmp_path / "b.db", local_service.token(), local_service.database_options
    assert daskscope("database", "backup", backup, *where).returncode == 0
    assert post(local_service.url, token, full_beat(make_cluster("later"))).ok
    assert "--replace" in daskscope("database", "restore", backup, *where).stderr
    done = daskscope("database", "restore", backup, "--replace", *where)
    assert "stop the service first" in done.stderr
    assert clusters_of(local_service, token) == {"later"}
    local_service.stop()
    done = daskscope("database", "restore", backup, "--replace", *where)
    assert done.returncode == 0, done.stderr
    aside = local_service.data_dir / "daskscope.db.replaced-1"
    assert str(aside) in done.stdout
    with closing(sqlite3.connect(aside)) as connection:
        assert connection.execute("SELECT id FROM cluster").fetchall() == [("later",)]
    local_service.start()
    assert clusters_of(local_service, token) == set()


def test_what_root_restores_belongs_to_the_user_of_the_folder_and_the_answer_says_where_it_is(
    local_service: ServiceProcess, tmp_path: Path
) -> None:
    backup, folder = tmp_path / "b.db", tmp_path / "of-the-service"
    assert daskscope("database", "backup", backup, *local_service.database_options).returncode == 0
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, 65_534, 65_534)
    done = daskscope("database", "restore", backup, "--data-dir", folder)
    restored = folder / "daskscope.db"
    assert f"The database {restored} now holds the backup {backup}." in done.stdout
    assert restored.stat().st_uid == folder.stat().st_uid
    assert restored.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_makes_in_the_folder_of_a_user_belongs_to_the_user(tmp_path: Path) -> None:
    folder = tmp_path / "of-the-service"
    folder.mkdir()
    os.chown(folder, 65_534, 65_534)
    for command in (("database", "upgrade"), ("keys", "rotate")):
        assert daskscope(*command, "--data-dir", folder).returncode == 0
    made = {file.name: file.stat() for file in folder.iterdir()}
    assert {"daskscope.db", FILE} <= set(made)
    assert {name: found.st_uid for name, found in made.items()} == dict.fromkeys(made, 65_534)


def test_what_is_no_backup_is_refused_and_nothing_changed(
    local_service: ServiceProcess, tmp_path: Path
) -> None:
    where = local_service.database_options
    local_service.stop()
    good = tmp_path / "good.db"
    assert daskscope("database", "backup", good, *where).returncode == 0
    before = sorted(file.name for file in local_service.data_dir.iterdir())
    text, other, newer, cut = (tmp_path / name for name in ("text", "other", "newer", "cut"))
    text.write_text("no database\n" * 1000)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE other (id)")
    newer.write_bytes(good.read_bytes())
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    cut.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    damaged = tmp_path / "damaged"
    damaged.write_bytes(good.read_bytes())
    with damaged.open("r+b") as file:
        file.seek(4096 * 10)
        file.write(b"\x5a" * 4096 * 3)
    for wrong, said in (
        (text, "not a database"),
        (other, "no table of daskscope"),
        (newer, "a newer daskscope"),
        (cut, "malformed"),
        (damaged, f"{damaged} is damaged"),
        (tmp_path / "missing", "does not exist"),
    ):
        done = daskscope("database", "restore", wrong, "--replace", *where)
        assert done.returncode != 0, wrong
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert sorted(one.name for one in local_service.data_dir.iterdir()) == before
    assert "exists" in daskscope("database", "backup", good, *where).stderr
    local_service.start()


def test_a_dump_of_postgresql_is_served_again(
    postgresql: PostgresServer, template: str, tmp_path: Path
) -> None:
    """The commands of docs/operations.md."""
    binaries = find_binaries()
    assert binaries is not None
    url = postgresql.url(postgresql.create(template))
    dump, restored = tmp_path / "daskscope.dump", postgresql.url(postgresql.create())
    with ServiceProcess(tmp_path / "data", database_url=url) as service:
        token = service.token()
        with Load(service) as load:
            load.wait_for(20)
            before = list(load.acknowledged)
            run(binaries / "pg_dump", "--format=custom", f"--file={dump}", libpq(url))
            load.wait_for(5)
        done = daskscope("database", "backup", tmp_path / "x", *service.database_options)
        assert "pg_dump" in done.stderr
    run(
        binaries / "pg_restore",
        "--no-owner",
        "--exit-on-error",
        f"--dbname={libpq(restored)}",
        dump,
    )
    with ServiceProcess(tmp_path / "data", database_url=restored) as again:
        assert set(before) <= clusters_of(again, token)
        assert post(again.url, token, full_beat(make_cluster("new"))).ok
        assert "new" in clusters_of(again, token)


def libpq(url: str) -> str:
    return url.replace("postgresql+psycopg", "postgresql")


def run(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True, timeout=60)


def test_sqlite_gives_back_the_room_of_what_was_removed(
    local_service: ServiceProcess,
) -> None:
    where = local_service.database_options
    token, file = local_service.token(), local_service.data_dir / "daskscope.db"
    with Load(local_service) as load:
        load.wait_for(60)
    assert post(local_service.url, token, full_beat(make_cluster("kept"))).ok
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        connection.execute("UPDATE cluster SET last_seen_at = 1 WHERE id <> 'kept'")
        connection.commit()
    before = file.stat().st_size
    done = daskscope("retention", "run", *where)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        ((unused,),) = connection.execute("PRAGMA freelist_count")
        ((pages,),) = connection.execute("PRAGMA page_count")
    assert unused <= pages / 20
    assert file.stat().st_size < before
    assert clusters_of(local_service, token) == {"kept"}
