"""Users' code in the database: its files hold none of it, and who has the keys reads it."""

from __future__ import annotations

import stat
import uuid
from pathlib import Path

import requests
from sqlalchemy import MetaData, create_engine, delete, insert, select

from daskscope.codec import decode_reply
from daskscope.protocol import CodeFrame, ProfileLine
from daskscope_service.db import schema
from daskscope_service.db.engine import open_database, upgrade_database
from daskscope_service.db.keys import FILE
from daskscope_service.settings import Settings
from tests.ports import free_port
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_event,
    make_failure,
    make_profile,
    make_worker_loss,
    post,
)
from tests.service.conftest import NewDatabase
from tests.service.test_command_line import daskscope
from tests.service.test_migrations import raw, rows_of
from tests.service_process import ServiceProcess

CLUSTER = "Scheduler-code"


class Secrets:
    """Lines of code that are planted, and looked for."""

    def __init__(self) -> None:
        self.mark = f"planted_{uuid.uuid4().hex}"
        self.code = make_code(f"x = {self.mark}_code\nx.compute()\n")

    def __getitem__(self, what: str) -> str:
        return f"{self.mark}_{what} = 1"

    def found_in(self, kept: bytes) -> list[str]:
        """Return what of them, or of what tells that it is them, is in ``kept``."""
        return [text for text in (self.mark, self.code.hash) if text.encode() in kept]

    def send(self, service: ServiceProcess, token: str, seq: int = 1) -> None:
        """Have a cluster report all of them."""
        beat = make_beat(
            make_cluster(CLUSTER),
            seq,
            computations=(
                make_computation(frames=(CodeFrame(self.code.file, 12, self.code.hash),)),
            ),
            failures=(make_failure(message=self["message"], traceback=self["traceback"]),),
            worker_losses=(make_worker_loss(log=(self["log"],)),),
            events=(make_event(message=f'"{self["event"]}"'),),
            profiles=(make_profile(lines=(ProfileLine("run.py", "f", 1, self["profile"]),)),),
            code=(self.code,),
        )
        answer = post(service.url, token, beat)
        assert answer.status_code == 200, answer.text
        said = {"key": "exception.stacktrace", "value": {"stringValue": self["otlp"]}}
        at = str(1_700_000_000_000_000_000 + seq)
        record = {
            "timeUnixNano": at,
            "body": {"stringValue": self["body"]},
            "attributes": [said],
        }
        span = {
            "traceId": "1" * 32,
            "spanId": "2" * 16,
            "name": "task",
            "startTimeUnixNano": at,
            "endTimeUnixNano": at,
            "attributes": [said],
        }
        for path, document in (
            ("logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}),
            ("traces", {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}),
        ):
            answer = requests.post(
                f"{service.url}/v1/{path}",
                json=document,
                headers={"Authorization": f"Bearer {token}"},
                timeout=30,
            )
            assert answer.status_code == 200, answer.text

    def told_by(self, service: ServiceProcess, token: str) -> list[str]:
        """Return which of them the API tells."""
        told = ""
        for path in (
            f"clusters/{CLUSTER}/computations/c1",
            "events",
            f"clusters/{CLUSTER}/profiles/p1",
            f"clusters/{CLUSTER}",
        ):
            told += ask(service, token, path).text
        words = ("code", "message", "traceback", "log", "event", "profile")
        return [word for word in words if f"{self.mark}_{word}" in told]


ALL = ["code", "message", "traceback", "log", "event", "profile"]


def ask(service: ServiceProcess, token: str, path: str) -> requests.Response:
    answer = requests.get(
        f"{service.url}/api/v1/{path}", headers={"Authorization": f"Bearer {token}"}, timeout=30
    )
    assert answer.status_code == 200, answer.text
    return answer


def kept(data_dir: Path, database_url: str) -> bytes:
    """Return all bytes of a database: its files, or every value of every table."""
    if not database_url:
        files = [file for file in data_dir.iterdir() if file.name != FILE]
        assert {file.name for file in files} >= {"daskscope.db"}
        return b"".join(file.read_bytes() for file in files)
    engine = create_engine(database_url)
    tables = MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        values = [
            value if isinstance(value, bytes) else str(value).encode()
            for table in tables.tables.values()
            for row in connection.execute(select(table))
            for value in row
        ]
    engine.dispose()
    return b"\n".join(values)


def test_the_database_shows_no_code_and_the_service_does(service: ServiceProcess) -> None:
    secrets, token = Secrets(), service.token()
    secrets.send(service, token)
    assert secrets.told_by(service, token) == ALL

    assert secrets.found_in(kept(service.data_dir, service.database_url)) == []
    service.stop("KILL")  # which leaves what was written last in the log beside the database
    assert secrets.found_in(kept(service.data_dir, service.database_url)) == []


def test_what_otlp_brought_is_read_again_and_kept_once(service: ServiceProcess) -> None:
    secrets, token = Secrets(), service.token()
    secrets.send(service, token)
    secrets.send(service, token)
    with service.engine.connect() as connection:
        (record,) = connection.execute(select(schema.log_record)).mappings()
        (span,) = connection.execute(select(schema.span)).mappings()
    said = {"exception.stacktrace": secrets["otlp"]}
    assert (record["body"], record["attributes"]) == (secrets["body"], said)
    assert span["attributes"] == said


def test_code_that_was_sent_is_not_asked_for_again(service: ServiceProcess) -> None:
    secrets, token = Secrets(), service.token()
    frames = (CodeFrame(secrets.code.file, 12, secrets.code.hash),)
    beat = make_beat(make_cluster(CLUSTER), computations=(make_computation(frames=frames),))
    assert decode_reply(post(service.url, token, beat).content).code_wanted == (secrets.code.hash,)
    secrets.send(service, token)
    assert decode_reply(post(service.url, token, beat).content).code_wanted == ()
    service.stop()
    service.start()
    assert decode_reply(post(service.url, token, beat).content).code_wanted == ()


def test_an_upgraded_database_shows_no_code_that_it_held_before(
    tmp_path: Path, empty_database: NewDatabase
) -> None:
    settings = Settings(data_dir=tmp_path / "data", database_url=empty_database())
    upgrade_database(settings, to="0004")
    secrets = Secrets()
    with raw(settings) as connection:
        tables = MetaData()
        tables.reflect(connection)
        for name, rows in rows_of("0004").items():
            connection.execute(insert(tables.tables[name]), rows)
        failure, code = tables.tables["failure"], tables.tables["code"]
        (one,) = rows_of("0004")["failure"]
        connection.execute(
            insert(failure),
            [
                one | {"computation": f"n{n:04}", "traceback": secrets["traceback"] * 100}
                for n in range(2000)
            ],
        )
        connection.execute(
            insert(code).values(
                rows_of("0004")["code"][0] | {"hash": secrets.code.hash, "text": secrets.code.text}
            )
        )
    with raw(settings) as connection:
        if connection.dialect.name == "sqlite":  # what is gone leaves its text behind in the file
            connection.exec_driver_sql("PRAGMA secure_delete=OFF")
        connection.execute(delete(failure).where(failure.c.computation >= "n0600"))
    if not settings.database_url:
        assert secrets.found_in(kept(settings.data_dir, "")) != []

    upgrade_database(settings)
    assert secrets.found_in(kept(settings.data_dir, settings.database_url)) == []
    engine = open_database(settings)
    with engine.connect() as connection:
        texts = connection.execute(select(schema.failure.c.traceback)).scalars().all()
        assert texts.count(secrets["traceback"] * 100) == len(texts) - 1 == 600
        assert secrets.code.text in connection.execute(select(schema.code.c.text)).scalars().all()
    engine.dispose()


def test_the_first_start_makes_a_key_that_no_one_else_may_read(service: ServiceProcess) -> None:
    file = service.data_dir / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_text()
    assert str(file) in service.output
    service.stop()
    service.start()
    assert file.read_text() == before


def test_without_its_key_the_service_does_not_start_and_says_what_to_do(
    service: ServiceProcess, tmp_path: Path
) -> None:
    secrets, token = Secrets(), service.token()
    secrets.send(service, token)
    service.stop()
    file = service.data_dir / FILE
    file.rename(tmp_path / "kept")
    start = ("serve", "--port", free_port(), *service.database_options)
    for environment, said in (
        ({}, f"It is not in {file}, which has none"),
        ({"DASKSCOPE_CODE_KEYS": "ab" * 32}, "It is not in DASKSCOPE_CODE_KEYS, which has others"),
        (
            {"DASKSCOPE_CODE_KEYS": "ab" * 31},
            "DASKSCOPE_CODE_KEYS, key 1: an encryption key has 64",
        ),
    ):
        done = daskscope(*start, **environment)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not file.exists()

    (tmp_path / "kept").rename(file)
    service.start()
    assert secrets.told_by(service, token) == ALL


def test_a_second_process_needs_the_key_of_the_first(
    service: ServiceProcess, tmp_path: Path
) -> None:
    elsewhere = ("--data-dir", tmp_path / "elsewhere")
    url = service.database_url or f"sqlite:///{service.data_dir / 'daskscope.db'}"
    done = daskscope("serve", "--port", free_port(), "--database-url", url, *elsewhere)
    assert done.returncode == 1
    assert "copy it from the machine that made it" in done.stderr
