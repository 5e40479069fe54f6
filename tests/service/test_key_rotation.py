"""Replacing the keys that users' code is encrypted with, and losing them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import requests
from sqlalchemy import Connection, Engine, func, insert, select, type_coerce
from sqlalchemy.types import LargeBinary

from daskscope.errors import ConfigurationError
from daskscope_service.accounts import audit, key_rotation
from daskscope_service.db import key_register, schema
from daskscope_service.db.engine import open_database, writing
from daskscope_service.db.keys import FILE
from daskscope_service.db.sealing import MARK_BYTES
from daskscope_service.settings import Settings
from tests import sqlite_template
from tests.forked import ForkedProcess
from tests.patience import PATIENCE
from tests.service.beats import make_beat, make_failure, post
from tests.service.conftest import NewDatabase
from tests.service.people import sign_in_by_link
from tests.service.revisions import r0001
from tests.service.test_code_at_rest import ALL, CLUSTER, Secrets, ask, kept
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess

OLD, NEW = "01" * 32, "02" * 32


def fill(engine: Engine, rows: int) -> None:
    """Put failures into the database, sealed with the key in use."""
    (one,) = r0001.ROWS["failure"]
    with writing(engine) as connection:
        connection.execute(
            insert(schema.failure),
            [one | {"computation": f"f{n}", "traceback": f"line {n}"} for n in range(rows)],
        )


def marks(engine: Engine) -> dict[bytes, int]:
    """Return how many tracebacks there are by the key that sealed them."""
    mark = func.substr(type_coerce(schema.failure.c.traceback, LargeBinary), 1, MARK_BYTES)
    query = select(mark, func.count()).where(schema.failure.c.traceback.is_not(None))
    with engine.connect() as connection:
        return {bytes(id): count for id, count in connection.execute(query.group_by(mark))}


def tracebacks(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        query = select(schema.failure.c.traceback).where(schema.failure.c.cluster == "Scheduler-1")
        return set(connection.execute(query).scalars())


def rotate(service: ServiceProcess, **environment: str) -> subprocess.CompletedProcess[str]:
    return daskscope("keys", "rotate", *service.database_options, **environment)


@pytest.fixture
def given(tmp_path: Path, new_database: NewDatabase) -> Iterator[ServiceProcess]:
    """A service whose key is given by its environment."""
    url = new_database()
    with ServiceProcess(tmp_path / "data", database_url=url, code_keys=(OLD,)) as service:
        yield service


def test_a_key_is_replaced_while_the_service_runs(service: ServiceProcess) -> None:
    secrets, token = Secrets(), service.token()
    secrets.send(service, token)
    fill(service.engine, 250)
    (old,) = marks(service.engine)

    done = rotate(service)

    assert done.returncode == 0, done.stderr
    assert f"{250 + 7} rows" in done.stdout
    (new,) = marks(service.engine)
    assert new != old
    with service.engine.connect() as connection:
        assert list(key_register.registered(connection)) == [new[1:].hex()]
    assert secrets.told_by(service, token) == ALL
    assert tracebacks(service.engine) == {f"line {n}" for n in range(250)}
    later = Secrets()
    later.send(service, token, seq=2)  # the service takes the new key without a restart
    assert later.told_by(service, token) == ALL
    assert marks(service.engine) == {new: 251}
    assert later.found_in(kept(service.data_dir, service.database_url)) == []
    keys = (service.data_dir / FILE).read_text().split("\n")
    assert len([line for line in keys if line and not line.startswith("#")]) == 2
    told = [(entry.action, entry.actor) for entry in audit.newest(service.engine, 10)]
    assert told.count(("key changed", audit.OPERATOR)) == 2


def test_a_rotation_that_was_killed_goes_on_where_it_is_run_again(service: ServiceProcess) -> None:
    secrets, token = Secrets(), service.token()
    secrets.send(service, token)
    fill(service.engine, 3000)
    (old,) = marks(service.engine)
    killed = ForkedProcess(["keys", "rotate", *service.database_options], os.environ)
    try:
        while killed.poll() is None and len(marks(service.engine)) < 2:
            pass  # without a pause, in which it might end
        assert killed.poll() is None, killed.communicate(1)
    finally:
        killed.kill()
        killed.communicate(PATIENCE)
    assert marks(service.engine)[old] > 0
    assert secrets.told_by(service, token) == ALL
    assert len(tracebacks(service.engine)) == 3000
    service.stop()
    service.start()
    assert secrets.told_by(service, token) == ALL

    done = rotate(service)

    assert "an earlier run was interrupted" in done.stdout
    assert old not in marks(service.engine)
    assert len(tracebacks(service.engine)) == 3000
    assert "is not in use" not in daskscope("keys", "status", *service.database_options).stdout


def test_what_a_service_writes_meanwhile_is_not_undone(
    service: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = service.token()
    beat = make_beat(failures=(make_failure(traceback="first"),))
    post(service.url, token, beat)
    key = key_rotation.begin(service.engine).key
    later = make_beat(beat.cluster, 2, failures=(make_failure(traceback="second", count=4),))

    def write_late(engine: Engine) -> AbstractContextManager[Connection]:
        # What is written back has been read by now.
        assert post(service.url, token, later).status_code == 200
        return writing(engine)

    monkeypatch.setattr(key_rotation, "writing", write_late)
    assert sum(step.rows for step in key_rotation.renew(service.engine, key)) == 1
    with service.engine.connect() as connection:
        found = connection.execute(select(schema.failure.c.traceback)).scalars().all()
    assert found == ["second"]


def test_of_two_rotations_the_earlier_one_stops(service: ServiceProcess) -> None:
    fill(service.engine, 250)
    first = key_rotation.begin(service.engine)
    steps = key_rotation.renew(service.engine, first.key)
    next(steps)
    (service.data_dir / FILE).write_text(
        NEW + "\n" + (service.data_dir / FILE).read_text()
    )  # else the second would go on with the first one's
    second = key_rotation.begin(service.engine)
    assert (second.key.id, second.resumed) != (first.key.id, True)
    with pytest.raises(ConfigurationError, match="is already replacing the key"):
        list(steps)
    with pytest.raises(ConfigurationError, match="is already replacing the key"):
        key_rotation.finish(service.engine, first.key)
    list(key_rotation.renew(service.engine, second.key))
    assert len(key_rotation.finish(service.engine, second.key)) == 2
    assert len(marks(service.engine)) == 1
    assert len(tracebacks(service.engine)) == 250


def test_a_given_key_is_replaced_by_the_one_before_it(given: ServiceProcess) -> None:
    secrets, token = Secrets(), given.token()
    secrets.send(given, token)
    done = rotate(given, DASKSCOPE_CODE_KEYS=OLD)
    assert done.returncode == 1
    assert "put a new key before the others in DASKSCOPE_CODE_KEYS" in done.stderr

    done = rotate(given, DASKSCOPE_CODE_KEYS=f"{NEW},{OLD}")
    assert done.returncode == 0, done.stderr
    # A service that was not given the new key keeps nothing in clear, and loses nothing.
    beat = make_beat(failures=(make_failure(traceback="later"),))
    refused = post(given.url, token, beat)
    assert refused.status_code == 503
    assert "lacks the key" in refused.json()["detail"]
    given.wait_for("no text that may contain code can be stored")
    assert post(given.url, token, make_beat()).status_code == 200

    given.stop()
    with ServiceProcess(
        given.data_dir, database_url=given.database_url, code_keys=(NEW,)
    ) as service:
        assert post(service.url, token, beat).status_code == 200
        assert secrets.told_by(service, token) == ALL


def test_a_lost_key_is_given_up_and_pages_say_what_cannot_be_read(
    service: ServiceProcess,
) -> None:
    secrets, token = Secrets(), service.token()
    secrets.send(service, token)
    file = service.data_dir / FILE
    with service.engine.connect() as connection:
        (id,) = key_register.registered(connection)
    done = daskscope("keys", "forget", id, *service.database_options)
    assert "is not lost" in done.stderr
    service.stop()
    lost = file.rename(file.with_name("lost"))
    done = daskscope("keys", "forget", "00000000", *service.database_options)
    assert f"the database uses no key 00000000; it uses {id}" in done.stderr
    done = daskscope("keys", "status", *service.database_options)
    assert done.returncode == 1
    assert f"{id}  in use            no" in done.stdout

    assert daskscope("keys", "forget", id, *service.database_options).returncode == 0

    service.start()
    why = f"encrypted with the key {id}, which this service does not have"
    computation = ask(service, token, f"clusters/{CLUSTER}/computations/c1").json()
    (frame,), (failure,) = computation["frames"], computation["failures"]
    assert (frame["text"], frame["unreadable"]) == (None, {"text": why})
    assert (failure["message"], failure["traceback"]) == (None, None)
    assert failure["unreadable"] == {"message": why, "traceback": why}
    assert failure["function"] == "divide"
    (group,) = ask(service, token, "exceptions").json()["items"]
    assert group["unreadable"] == {"message": why, "traceback": why}
    (event,) = ask(service, token, "events").json()["items"]
    assert (event["message"], event["unreadable"]) == ("", {"message": why})
    profile = ask(service, token, f"clusters/{CLUSTER}/profiles/p1").json()
    assert profile["unreadable"] == {"lines": why}
    assert [line["text"] for line in profile["lines"]] == [None]
    browser = requests.Session()
    sign_in_by_link(service, browser)
    for path, told in (
        (f"clusters/{CLUSTER}", "message cannot be read: it is"),
        (f"clusters/{CLUSTER}", "its last log lines cannot be read: it is"),
        (f"clusters/{CLUSTER}/computations/c1", "code cannot be read: it is"),
        (f"clusters/{CLUSTER}/computations/c1", "traceback cannot be read: it is"),
        ("exceptions", "message cannot be read: it is"),
        (f"exceptions/{failure['fingerprint']}", "traceback cannot be read: it is"),
    ):
        page = browser.get(f"{service.url}/{path}", timeout=30)
        assert page.status_code == 200
        assert f"{told} {why}" in page.text, path

    later = Secrets()  # and what comes from now on is kept and read
    later.send(service, token, seq=2)
    assert later.told_by(service, token) == ALL
    assert later.found_in(kept(service.data_dir, service.database_url)) == []
    file.write_text(file.read_text() + lost.read_text())  # found after all
    with service.engine.connect() as connection:
        texts = connection.execute(select(schema.code.c.text)).scalars().all()
    assert set(texts) == {secrets.code.text, later.code.text}


def test_what_was_changed_since_is_not_taken_for_code(engine: Engine) -> None:
    fill(engine, 1)
    with writing(engine) as connection:
        value = type_coerce(schema.failure.c.traceback, LargeBinary)
        sealed = connection.execute(select(value)).scalar_one()
        connection.exec_driver_sql(
            "UPDATE failure SET traceback = "
            + (
                f"X'{sealed[:-1].hex()}00'"
                if engine.dialect.name == "sqlite"
                else f"'\\x{sealed[:-1].hex()}00'::bytea"
            )
        )
        found = connection.execute(select(schema.failure.c.traceback)).scalar_one()
    assert found.startswith("damaged: it has changed since it was encrypted with the key ")


def test_a_file_of_keys_that_holds_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("# mine\nsecret\n")
    settings = Settings(data_dir=tmp_path)
    sqlite_template.copy_to(tmp_path)
    engine = open_database(settings)
    with pytest.raises(
        ConfigurationError, match=r"code.keys: an encryption key has 64 hex"
    ) as error:
        key_rotation.begin(engine)
    engine.dispose()
    assert "secret" not in str(error.value)
