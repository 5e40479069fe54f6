"""What belongs to a user or a cluster is exported, and is gone once it is deleted."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from sqlalchemy import func, make_url, or_, select, update

from daskscope import names
from daskscope.protocol import CodeFrame, Heartbeat
from daskscope_service.cli.main import cli
from daskscope_service.db import schema
from daskscope_service.db.data_ownership import TABLES, Whose
from daskscope_service.db.engine import writing
from daskscope_service.db.keys import FILE
from daskscope_service.export.files import JsonLines
from daskscope_service.export.rows import NAMES, Choice, parts
from daskscope_service.retention import deletion
from daskscope_service.retention.throttle import Throttle
from tests.patience import wait_until
from tests.postgresql import PostgresServer
from tests.service.beats import (
    full_beat,
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_failure,
    make_task_group,
)
from tests.service.beats import post as post_beat
from tests.service.conftest import NewDatabase
from tests.service.test_command_line import daskscope
from tests.service.test_otlp import AT, metrics_request
from tests.service_process import ServiceProcess


def full_beat_of(user: str, cluster: str, mark: str) -> Heartbeat:
    """Return a beat with something of everything, and ``mark`` in each text."""
    beat = full_beat(make_cluster(cluster, user=user, name=mark, tags={"tag": mark}))
    code = make_code(f"{mark} = 1\n", f"/home/{mark}.py")
    return replace(
        beat,
        computations=tuple(
            replace(c, user=user, spans=(mark,), frames=(CodeFrame(code.file, 1, code.hash),))
            for c in beat.computations
        ),
        task_groups=tuple(replace(g, name=f"{g.name}-{mark}") for g in beat.task_groups),
        failures=tuple(replace(f, message=mark, traceback=mark) for f in beat.failures),
        worker_losses=tuple(replace(w, log=(mark,)) for w in beat.worker_losses),
        activities=tuple(replace(a, prefix=a.prefix and mark) for a in beat.activities),
        profiles=tuple(
            replace(p, lines=tuple(replace(line, function=mark) for line in p.lines))
            for p in beat.profiles
        ),
        task_streams=tuple(replace(s, prefixes=(mark, mark)) for s in beat.task_streams),
        shutdowns=tuple(replace(s, detail=mark) for s in beat.shutdowns),
        events=tuple(replace(e, message=json.dumps(mark)) for e in beat.events),
        code=(code,),
    )


def send_otlp(
    service: ServiceProcess, token: str, cluster: str, computation: str, mark: str
) -> None:
    """Send a metric of the cluster, and a span and a log record of one of its computations."""
    metric = Metric(name="m")
    for second in range(3):
        point = metric.gauge.data_points.add(
            time_unix_nano=AT + (second + 1) * 10**9, as_double=1.0
        )
        # A series is its cluster's, whoever works there.
        point.attributes.add(key="k").value.string_value = "of all" if cluster == "shared" else mark
    metrics = metrics_request(metric)
    traces, logs = ExportTraceServiceRequest(), ExportLogsServiceRequest()
    groups: Any = (
        metrics.resource_metrics[0],
        traces.resource_spans.add(),
        logs.resource_logs.add(),
    )
    for group in groups:
        del group.resource.attributes[:]
        attribute = group.resource.attributes.add(key=names.CLUSTER_ID)
        attribute.value.string_value = cluster
    # Ids are what a sender makes them; here they are different for each mark.
    id = (mark * 16).encode()[:16]
    span = (
        traces.resource_spans[0]
        .scope_spans.add()
        .spans.add(
            trace_id=id, span_id=id[:8], name=mark, start_time_unix_nano=AT, end_time_unix_nano=AT
        )
    )
    record = logs.resource_logs[0].scope_logs.add().log_records.add(time_unix_nano=AT + 10**9)
    record.body.string_value = mark
    for attributes in (span.attributes, record.attributes):
        attributes.add(key=names.COMPUTATION_ID).value.string_value = computation
    for path, request in (("metrics", metrics), ("traces", traces), ("logs", logs)):
        answer = requests.post(
            f"{service.url}/v1/{path}",
            data=request.SerializeToString(),
            headers={"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {token}"},
            timeout=30,
        )
        assert answer.ok, answer.text


def plant(service: ServiceProcess, workspace: str = "default") -> None:
    """Have Ada and Grace report clusters of their own, and both work on a shared one of Grace's."""
    token = service.token(workspace=workspace)
    for user, mark in (("ada", "lovelace"), ("grace", "hopper")):
        assert post_beat(service.url, token, full_beat_of(user, f"of-{user}", mark)).ok
        send_otlp(service, token, f"of-{user}", "c1", mark)
    shared = make_cluster("shared", user="grace", name="shared")
    for user, mark in (("ada", "byron"), ("grace", "murray")):
        code = make_code(f"{mark} = 2\n", f"/home/{mark}.py")
        frames = (CodeFrame(code.file, 1, code.hash),)
        beat = make_beat(
            shared,
            computations=(
                make_computation(
                    f"c-{user}",
                    user=user,
                    spans=(mark,),
                    frames=frames,
                    status="erred",
                    stopped_at=time.time(),
                ),
            ),
            task_groups=(make_task_group(f"c-{user}", f"sum-{mark}"),),
            failures=(make_failure(computation=f"c-{user}", message=mark, traceback=mark),),
            code=(code,),
        )
        assert post_beat(service.url, token, beat).ok
        send_otlp(service, token, "shared", f"c-{user}", mark)
    # The service adds findings and jobs by itself, and then no more.
    wait_until(lambda: not _due(service), what="the findings and the jobs")


def _due(service: ServiceProcess) -> int:
    now, run = time.time(), schema.computation.c
    due = select(func.count()).where(or_(run.judge_at <= now, run.job_due_at <= now))
    with service.engine.connect() as connection:
        return connection.execute(due).scalar_one()


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> ServiceProcess:
    """A service that has stopped, with what was planted in its database."""
    data_dir = tmp_path_factory.mktemp("seed") / "data"
    with ServiceProcess(data_dir, database_url=new_database()) as service:
        plant(service)
    return service


@pytest.fixture
def planted(
    tmp_path: Path, seed: ServiceProcess, request: pytest.FixtureRequest
) -> Iterator[ServiceProcess]:
    """A service that is not started, with what was planted, for one test alone."""
    shutil.copytree(seed.data_dir, tmp_path / "data")
    url = seed.database_url
    if url:
        server: PostgresServer = request.getfixturevalue("postgresql")
        url = server.url(server.create(make_url(url).database or ""))
    copy = ServiceProcess(tmp_path / "data", database_url=url)
    yield copy
    copy.engine.dispose()


@pytest.fixture
def running(planted: ServiceProcess) -> Iterator[ServiceProcess]:
    """The same service, started."""
    with planted:
        yield planted


ADAS = ("lovelace", "byron")
GRACES = ("hopper", "murray")


def tables_with(service: ServiceProcess, mark: str) -> set[str]:
    """Return the tables that hold ``mark`` anywhere, as the service reads them."""
    found = set()
    with service.engine.connect() as connection:
        for table in schema.metadata.sorted_tables:
            for row in connection.execute(select(table)):
                if mark in str(tuple(row)):
                    found.add(table.name)
    return found


def delete(service: ServiceProcess, *arguments: str) -> str:
    done = daskscope("delete", *arguments, "--yes", *service.database_options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_deleted_user_is_in_no_table_and_others_are_as_before(running: ServiceProcess) -> None:
    plant(running, "finance")
    with writing(running.engine) as connection:  # it may be silent meanwhile
        connection.execute(update(schema.cluster).values(last_seen_at=time.time()))
    assert len(tables_with(running, "lovelace")) >= 10
    assert tables_with(running, "A computation of ada on shared") == {"notice"}
    said = delete(running, "--user", "ada")
    assert "Still running, so their data comes back with their next heartbeat: of-ada" in said
    with running.engine.connect() as connection:
        for table in schema.metadata.sorted_tables:
            if "workspace" not in table.c or table.name in ("token", "audit_entry"):
                continue
            rows = connection.execute(select(table).where(table.c.workspace == "default")).all()
            text = str(rows)
            for mark in (*ADAS, "of ada on"):
                assert mark not in text, table.name
    assert tables_with(running, "A computation of grace on shared") == {"notice"}
    for mark in GRACES:
        assert len(tables_with(running, mark)) >= 5, mark
    for mark in ADAS:  # in the other workspace
        assert tables_with(running, mark)
    # What belongs to the cluster of another stays, and only that.
    with running.engine.connect() as connection:
        clusters = connection.execute(
            select(schema.cluster.c.id).where(schema.cluster.c.workspace == "default")
        )
        assert set(clusters.scalars()) == {"of-grace", "shared"}
    entry = json.loads(daskscope("audit", "--limit", 1, "--json", *running.database_options).stdout)
    assert (entry["action"], entry["workspace"]) == ("data deleted", "default")
    assert entry["detail"].startswith("user ada: ")


def test_a_deleted_cluster_leaves_the_others(planted: ServiceProcess) -> None:
    delete(planted, "--cluster", "of-ada")
    assert not tables_with(planted, "lovelace") - {"audit_entry"}
    assert len(tables_with(planted, "byron")) >= 4
    assert len(tables_with(planted, "hopper")) >= 10
    done = daskscope("delete", "--cluster", "of-ada", *planted.database_options)
    assert done.returncode == 1
    assert "no data of a cluster 'of-ada' in the workspace default" in done.stderr


def test_a_cluster_is_chosen_by_the_name_that_pages_show_unless_several_have_it(
    running: ServiceProcess, tmp_path: Path
) -> None:
    twins = [make_cluster(id, name="twin") for id in ("one", "two")]
    for twin in twins:
        assert post_beat(running.url, running.token(), make_beat(twin)).ok
    where, folder = running.database_options, tmp_path / "export"
    renamed = make_cluster("plain-id", name="nightly.py")
    assert post_beat(running.url, running.token(), make_beat(renamed)).ok

    exported = daskscope("export", folder, "--cluster", "nightly.py", "--only", "cluster", *where)
    deleted = daskscope("delete", "--cluster", "nightly.py", "--yes", *where)
    several = daskscope("delete", "--cluster", "twin", "--yes", *where)

    assert exported.returncode == 0, exported.stderr
    rows = [json.loads(line) for line in (folder / "cluster.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["plain-id"]
    assert "cluster plain-id has in the workspace default:" in deleted.stdout
    assert several.returncode == 2
    assert "several clusters in the workspace default are called 'twin'" in several.stderr
    for twin in twins:
        assert twin.id in several.stderr


@pytest.mark.sqlite
def test_no_byte_of_a_deleted_user_is_left_in_the_files(running: ServiceProcess) -> None:
    folder = running.data_dir
    sealed = sealed_values_of_ada(folder / "daskscope.db")
    assert len(sealed) >= 10
    wanted = [*sealed, *(mark.encode() for mark in ADAS)]
    before = b"".join(file.read_bytes() for file in folder.iterdir())
    assert all(value in before for value in wanted)
    said = delete(running, "--user", "ada")
    if "was in use" in said:
        running.stop()
    for file in folder.iterdir():
        content = file.read_bytes()
        assert not any(value in content for value in wanted), file


def sealed_values_of_ada(file: Path) -> list[bytes]:
    """Return what is encrypted of Ada, as it is in the database: of her cluster, and her code."""
    found: list[bytes] = []
    with closing(sqlite3.connect(file)) as connection:
        for table in schema.metadata.sorted_tables:
            if "cluster" in table.c and "workspace" in table.c:
                rows = connection.execute(
                    f'SELECT * FROM "{table.name}" WHERE cluster = ?', ["of-ada"]
                )
                found += [value for row in rows for value in row if isinstance(value, bytes)]
        code = "SELECT text FROM code WHERE file IN ('/home/lovelace.py', '/home/byron.py')"
        found += [text for (text,) in connection.execute(code)]
    return found


def test_an_interrupted_deletion_is_finished_by_the_next(planted: ServiceProcess) -> None:
    whose = Whose("default", user="ada")
    steps = 0
    while True:  # one step further each time
        pace = Throttle(1.0)
        pace.rows = 1
        taken = [
            step
            for step, _ in zip(
                deletion.delete(planted.engine, whose, pace), range(steps), strict=False
            )
        ]
        if len(taken) < steps:
            break
        steps += 7
    for mark in ADAS:
        assert not tables_with(planted, mark) - {"audit_entry"}


def test_what_is_exported_of_a_user_is_what_would_be_deleted(planted: ServiceProcess) -> None:
    whose = Whose("default", user="ada")
    counted = deletion.count(planted.engine, whose)
    exported = {
        name: sum(len(rows) for rows in parts(planted.engine, name, Choice(whose)))
        for name in NAMES
    }
    assert exported.pop("code") == 2
    assert exported.pop("series") == counted.pop("point")
    del counted["series"]
    assert {name: rows for name, rows in exported.items() if rows} == counted


def test_it_asks_first_and_says_how_much(planted: ServiceProcess) -> None:
    done = daskscope(
        *("delete", "--user", "ada", *planted.database_options),
        DASKSCOPE_INFLUXDB_URL="http://influx.example:8086",
    )
    assert done.returncode == 1
    assert "Not deleted: the data in the InfluxDB http://influx.example:8086" in done.stdout
    assert "2 computation" in done.stdout
    assert "Delete all of this permanently?" in done.stdout
    assert tables_with(planted, "lovelace")
    for arguments in ((), ("--user", "ada", "--cluster", "of-ada")):
        done = daskscope("delete", *arguments, *planted.database_options)
        assert "--cluster ID or --user NAME" in done.stderr


def test_a_deleted_cluster_that_goes_on_is_there_again_with_what_it_sends(
    running: ServiceProcess,
) -> None:
    token = running.token()
    delete(running, "--cluster", "of-ada")
    assert post_beat(running.url, token, full_beat_of("ada", "of-ada", "again")).ok
    # The sender's ids of series are of the time before.
    for _ in range(2):
        answer = None
        try:
            send_otlp(running, token, "of-ada", "c1", "lovelace")
        except AssertionError as error:
            answer = str(error)
        if answer is None:
            break
    assert answer is None
    assert {"series", "span", "log_record"} <= tables_with(running, "lovelace")


def test_an_export_holds_every_row_once_in_files_for_their_owner_alone(
    planted: ServiceProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    done = daskscope("export", folder, *planted.database_options)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in folder.iterdir()} == {f"{name}.jsonl" for name in NAMES}
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    lines = {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in folder.iterdir()
    }
    with planted.engine.connect() as connection:
        for table in TABLES:
            if table.name == "series":
                continue
            rows = len(connection.execute(select(table)).all())
            assert len(lines[table.name]) == rows, table.name
            keys = [tuple(line[c.name] for c in table.primary_key) for line in lines[table.name]]
            assert len(set(keys)) == rows
    assert len(lines["series"]) == 3 * 3
    assert lines["series"][0]["at"] == "2023-11-14T22:13:21.000000Z"
    assert isinstance(lines["series"][0]["attributes"], dict)
    assert {code["file"] for code in lines["code"]} >= {"/home/lovelace.py", "/home/murray.py"}
    assert f"computation: {len(lines['computation'])} rows" in done.stderr
    again = daskscope("export", folder, *planted.database_options)
    assert again.returncode != 0
    assert "name another folder" in again.stderr


def test_an_export_of_a_time_has_what_was_there_then(planted: ServiceProcess) -> None:
    now = time.time()
    for since, until, expected in (
        (None, now - 86_400, 0),
        (now - 86_400, None, 4),
        (now, None, 0),
    ):
        choice = Choice(Whose("default"), since or 0.0, until or float("inf"))
        rows = [row for part in parts(planted.engine, "computation", choice) for row in part]
        assert len(rows) == expected
    where = planted.database_options
    done = daskscope(
        "export", "-", "--only", "cluster", "--since", "1 day", "--user", "ada", *where
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["of-ada"]
    done = daskscope("export", "-", *where)
    assert "standard output holds one table" in done.stderr
    done = daskscope("export", "-", "--only", "cluster", "--since", "soon", *where)
    assert "2026-01-31" in done.stderr


def test_parquet_reads_as_what_was_sent(planted: ServiceProcess, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder = tmp_path / "export"
    # Here, where the second one finds what it imports.
    arguments = ("export", str(folder), "--format", "parquet", *planted.database_options)
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    clusters = pandas.read_parquet(folder / "cluster.parquet").set_index("id")
    assert str(clusters.started_at.dtype).startswith("datetime64[us, UTC")
    assert json.loads(clusters.tags["of-ada"]) == {"tag": "lovelace"}
    assert abs(clusters.last_seen_at["of-ada"].timestamp() - time.time()) < 600
    points = pandas.read_parquet(folder / "series.parquet")
    assert len(points) == 9
    assert points["value"].tolist() == [1.0] * 9


@pytest.mark.sqlite
def test_without_pyarrow_it_says_what_to_install(planted: ServiceProcess, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    done = daskscope(
        *("export", tmp_path / "x", "--format", "parquet", *planted.database_options),
        PYTHONPATH=":".join([str(tmp_path), *filter(None, sys.path)]),
    )
    assert "pip install '/path/to/daskscope[parquet]'" in done.stderr


def test_an_export_is_read_in_parts_while_the_service_goes_on(
    shared_service: ServiceProcess,
) -> None:
    service, token = shared_service, shared_service.token(workspace="in-parts")
    cluster = make_cluster("big")
    for number in range(5):
        some = tuple(make_computation(f"c{number}-{n}") for n in range(200))
        assert post_beat(service.url, token, make_beat(cluster, number, computations=some)).ok
    stop, beats = threading.Event(), 0

    def go_on() -> None:
        nonlocal beats
        while not stop.is_set():
            beats += 1
            late = (make_computation(f"late-{beats}"),)
            assert post_beat(
                service.url, token, make_beat(cluster, 10 + beats, computations=late)
            ).ok

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        read = list(parts(service.engine, "computation", Choice(Whose("in-parts"))))
    finally:
        stop.set()
        thread.join()
    assert max(map(len, read)) <= 200
    ids = [row["id"] for part in read for row in part]
    assert len(ids) == len(set(ids))
    assert {f"c{number}-{n}" for number in range(5) for n in range(200)} <= set(ids)


@pytest.mark.sqlite
def test_what_cannot_be_exported_is_said_and_nothing_is_made(
    planted: ServiceProcess, tmp_path: Path
) -> None:
    planted.token(workspace="empty")
    where, folder = planted.database_options, tmp_path / "export"
    (tmp_path / "file").touch()
    for arguments, said in (
        ((folder, "--user", "adda"), "no data of a user 'adda'"),
        ((folder, "--user", "adda"), "users with data are: ada, grace"),
        ((folder, "--user", "ada", "--workspace", "empty"), "no user has data there"),
        ((folder, "--cluster", "of-adda"), "no data of a cluster 'of-adda'"),
        ((folder, "--user", "ada", "--cluster", "of-grace"), "on a cluster 'of-grace'"),
        ((folder, "--workspace", "finanze"), "'finanze'; the workspaces are: default, empty"),
        ((folder, "--only", "clusters"), "there is no table 'clusters'"),
        ((folder, "--since", "2026-02-01", "--until", "2026-01-01"), "no data would be exported"),
        ((tmp_path / "file",), "cannot write to"),
        ((tmp_path / "file" / "below",), "cannot write to"),
    ):  # fmt: skip
        done = daskscope("export", *arguments, *where)
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert not folder.exists()


@pytest.mark.sqlite
def test_names_of_users_who_have_data_control_no_terminal(
    shared_service: ServiceProcess, tmp_path: Path
) -> None:
    cluster = make_cluster("of-eve", user="eve\x1b]0;title\x07\n\x9b31m")
    assert post_beat(
        shared_service.url, shared_service.token(workspace="of-eve"), make_beat(cluster)
    ).ok
    done = daskscope(
        "export",
        tmp_path / "export",
        "--user",
        "ada",
        "--workspace",
        "of-eve",
        *shared_service.database_options,
    )
    assert "users with data are: eve ]0;title 31m" in done.stderr


@pytest.mark.sqlite
def test_who_closes_the_pipe_gets_no_traceback(shared_service: ServiceProcess) -> None:
    service, token = shared_service, shared_service.token(workspace="piped")
    cluster = make_cluster("big")
    for number in range(5):
        some = tuple(make_computation(f"c{number}-{n}") for n in range(200))
        assert post_beat(service.url, token, make_beat(cluster, number, computations=some)).ok
    command = [
        sys.executable,
        "-m",
        "daskscope_service.cli",
        "export",
        "-",
        "--only",
        "computation",
        "--workspace",
        "piped",
    ]
    with subprocess.Popen(
        [*command, *map(str, service.database_options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["cluster"] == "big"
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


@pytest.mark.sqlite
def test_what_has_lost_its_key_is_null_in_an_export_and_said(planted: ServiceProcess) -> None:
    (planted.data_dir / FILE).unlink()
    where = planted.database_options
    done = daskscope("export", "-", "--only", "failure", "--user", "ada", *where)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(row["message"], row["traceback"]) for row in rows} == {(None, None)}
    assert f"{2 * len(rows)} values are null, because each is encrypted with the key" in done.stderr


def test_only_times_of_rows_are_told_as_times() -> None:
    file = io.StringIO()
    file.close = lambda: None  # type: ignore[method-assign]
    sink = JsonLines(file)
    sink.write([{"at": 1.5, "stopped_at": None, "attributes": {"at": 1.5, "read_at": 1e300}}])
    sink.close()
    assert json.loads(file.getvalue()) == {
        "at": "1970-01-01T00:00:01.500000Z",
        "stopped_at": None,
        "attributes": {"at": 1.5, "read_at": 1e300},
    }


def test_the_help_names_what_can_be_exported() -> None:
    words = daskscope("export", "--help").stdout.split()
    assert set(NAMES) <= set(words)
