"""What goes by its age, what stays, and who removes it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import Engine, Table, func, insert, select, update

from daskscope.codec import decode_reply, encode
from daskscope.errors import ConfigurationError
from daskscope.protocol import CodeFrame, Heartbeat
from daskscope_service.accounts import tokens
from daskscope_service.db import schema
from daskscope_service.db.data_ownership import TABLES, failure_notice
from daskscope_service.db.engine import writing
from daskscope_service.db.series_generation import NO_WORKSPACE
from daskscope_service.ingest.heartbeat import BeatStore
from daskscope_service.ingest.quotas import Quotas
from daskscope_service.ingest.writer import Writer
from daskscope_service.periodic import Lease, Stopped
from daskscope_service.retention import policy
from daskscope_service.retention.expiry import remove_old_data
from daskscope_service.retention.rounds import WORK, run_round
from daskscope_service.retention.throttle import Throttle
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.settings import Settings
from tests.service.beats import full_beat, make_beat, make_cluster, make_code, make_computation
from tests.service.beats import post as post_beat
from tests.service.test_command_line import daskscope
from tests.service.test_migrations import NEWEST, rows_of
from tests.service_process import ServiceProcess

DAY = 86_400.0
NOW = 1_900_000_000.0

#: Rows of all tables.
ROWS = rows_of(NEWEST) | rows_of("0001")  # what is sealed later is in clear there

#: The tables of what clusters send, and the points of their series.
ALL = {table.name for table in TABLES} | {"point", "code"}


def put(engine: Engine, table: Table, **values: Any) -> None:
    """Put a row into ``table``: one like the revisions', but for ``values``."""
    with writing(engine) as connection:
        connection.execute(insert(table).values({**ROWS[table.name][0], **values}))


def fill(engine: Engine, at: float, cluster: str = "Scheduler-1") -> None:
    """Put a row into each table, of a cluster that was there at ``at``."""
    times = ("at", "started_at", "stopped_at", "first_at", "last_at", "last_seen_at")
    for table in TABLES:
        if table.name not in ROWS:
            continue
        values: dict[str, Any] = {name: at for name in times if name in table.c}
        if table is schema.usage:
            values["day"] = int(at // DAY)
        if "cluster" in table.c:
            values["cluster"] = cluster
        if table is schema.cluster:
            values["id"] = cluster
        if table is schema.span:
            values["span_id"] = cluster
        if table is schema.log_record:
            values["id"] = cluster
        if table is schema.series:
            del values["cluster"]
            values = {"cluster": cluster, "id": series_id(cluster)}
        put(engine, table, **values)
    put(engine, schema.point, series=series_id(cluster), time=int(at * 1000))
    put(engine, schema.code, unused_since=None)


def series_id(cluster: str) -> int:
    return sum(cluster.encode())


def counts(engine: Engine, cluster: str | None = None) -> dict[str, int]:
    """Return how many rows each table has, of this cluster if one is given."""
    found = {}
    with engine.connect() as connection:
        for name in ALL:
            table = schema.metadata.tables[name]
            query = select(func.count()).select_from(table)
            if table is schema.series:  # one row is no one's
                query = query.where(table.c.workspace != NO_WORKSPACE)
            if cluster is not None and name != "code":
                if table is schema.point:
                    of = select(schema.series.c.id).where(schema.series.c.cluster == cluster)
                    query = query.where(table.c.series.in_(of))
                else:
                    own = table.c.id if table is schema.cluster else table.c.cluster
                    query = query.where(own == cluster)
            found[name] = connection.execute(query).scalar_one()
    return found


def gone_after(engine: Engine, now: float) -> Counter[str]:
    """Remove what is old at ``now``; return the rows that went, by table."""
    gone: Counter[str] = Counter()
    pace = Throttle(1.0)
    for step in pace.run(remove_old_data(engine, "default", now, pace)):
        gone[step.table] += step.rows
    return +gone


def test_each_kind_goes_when_its_days_are_over_and_not_before(engine: Engine) -> None:
    fill(engine, NOW)
    went: dict[str, list[float]] = {}
    for days in (6.9, 8.1, 29.9, 31.1, 59.9, 61.1, 89.9, 91.1, 179.9, 181.1, 399.9, 401.1):
        for name in gone_after(engine, NOW + days * DAY):
            went.setdefault(name, []).append(days)
    with_their_cluster = {
        table.name: [401.1]
        for table in TABLES
        if table.name not in ("task_group", "group_run", "finding")
    }
    assert went == with_their_cluster | {
        "span": [31.1],
        "log_record": [31.1],
        "profile": [31.1],
        "task_stream": [31.1],
        "event": [91.1],
        "computation": [181.1],
        "code": [181.1],
        "failure": [181.1],
        "worker_loss": [181.1],
        "point": [401.1],
    }
    assert not any(counts(engine).values())


def test_the_notice_that_a_computation_failed_goes_with_it(engine: Engine) -> None:
    fill(engine, NOW)
    (key,) = ROWS["computation"]
    told = failure_notice("Scheduler-1", key["id"])
    put(engine, schema.notice, id=told, cluster="Scheduler-1")
    assert counts(engine)["notice"] == 2
    assert gone_after(engine, NOW + 181 * DAY)["computation"] == 1
    assert counts(engine)["notice"] == 1


def test_what_runs_stays_whatever_its_age(engine: Engine) -> None:
    fill(engine, NOW)
    later = NOW + 1000 * DAY
    with writing(engine) as connection:
        connection.execute(update(schema.cluster).values(last_seen_at=later, stopped_at=None))
        connection.execute(update(schema.computation).values(status="running", stopped_at=None))
    put(engine, schema.computation, id="c2", status="finished", started_at=NOW, stopped_at=NOW)
    gone_after(engine, later)
    left = {name for name, number in counts(engine).items() if number}
    # Its series without a point stays too: it goes on.
    assert left >= {"cluster", "computation", "task_group", "activity", "shutdown", "series"}
    assert counts(engine)["computation"] == 1


def test_other_workspaces_keep_theirs(engine: Engine) -> None:
    fill(engine, NOW)
    with writing(engine) as connection:
        for name in sorted(ALL - {"point"}):
            connection.execute(update(schema.metadata.tables[name]).values(workspace="finance"))
    before = counts(engine)
    assert not gone_after(engine, NOW + 10_000 * DAY)
    assert counts(engine) == before


def test_what_several_set_at_once_is_all_set(engine: Engine) -> None:
    kinds = [kind.name for kind in policy.KINDS if "series" not in kind.name]
    together = threading.Barrier(len(kinds))

    def set_one(kind: str) -> None:
        together.wait()
        policy.set_period(engine, "default", kind, 5)

    with ThreadPoolExecutor(len(kinds)) as pool:
        list(pool.map(set_one, kinds))
    assert policy.periods_set(engine, "default").keys() == set(kinds)


def test_what_was_set_counts_and_what_is_for_ever_stays(engine: Engine) -> None:
    fill(engine, NOW)
    policy.set_period(engine, "default", "logs", 3)
    policy.set_period(engine, "default", "events", None)
    policy.set_period(engine, "default", "clusters", None)
    assert set(gone_after(engine, NOW + 4 * DAY)) == {"log_record"}
    gone_after(engine, NOW + 10_000 * DAY)
    left = {name for name, number in counts(engine).items() if number}
    gone = {"computation", "task_group", "finding", "failure", "worker_loss", "profile"}
    gone |= {"task_stream", "span", "log_record", "group_run"}
    assert left == {table.name for table in TABLES} - gone - {"series"}  # and no code


def test_a_cluster_that_is_heard_of_again_keeps_what_it_has(engine: Engine) -> None:
    fill(engine, NOW)
    later, pace = NOW + 401 * DAY, Throttle(1.0)
    steps = pace.run(remove_old_data(engine, "default", later, pace))
    first = next(steps)
    assert first.rows == 1
    with writing(engine) as connection:
        connection.execute(update(schema.cluster).values(last_seen_at=later))
    for _ in steps:
        pass
    assert counts(engine)["cluster"] == counts(engine)["activity"] == 1


def test_code_goes_with_the_last_computation_that_names_it(engine: Engine) -> None:
    fill(engine, NOW)
    put(engine, schema.computation, cluster="Scheduler-2", id="young", started_at=NOW + 100 * DAY)
    assert not gone_after(engine, NOW + 150 * DAY)["code"]
    assert gone_after(engine, NOW + 182 * DAY)["computation"] == 1
    assert counts(engine)["code"] == 1
    assert gone_after(engine, NOW + 282 * DAY)["code"] == 1


def test_code_that_is_named_while_it_is_removed_is_asked_for_again(engine: Engine) -> None:
    code = make_code()
    instruments = ServiceMetrics()
    writer = Writer(engine, capacity=2, instruments=instruments)
    store = BeatStore(engine, writer, Quotas(engine, Settings(), instruments))
    token = tokens.id_of(tokens.create(engine, workspace="default", label="beats"))
    named = make_beat(
        computations=(make_computation(frames=(CodeFrame(code.file, 12, code.hash),)),)
    )

    def keep(beat: Heartbeat) -> tuple[str, ...]:
        return store.keep(encode(beat), "default", time.time(), token)[1]

    try:
        keep(make_beat(code=(code,)))
        # At each point of the removal, a beat names the code; after it, it is there or asked for.
        for steps in range(20):
            pace = Throttle(1.0)
            removal = remove_old_data(engine, "default", time.time(), pace)
            for _, _ in zip(range(steps), removal, strict=False):
                pass
            wanted = keep(named)
            for _ in removal:
                pass
            there = counts(engine)["code"] == 1
            assert there or wanted == (code.hash,)
            keep(make_beat(code=(code,)))
            assert keep(named) == ()
            with writing(engine) as connection:
                connection.execute(schema.computation.delete())
                connection.execute(schema.retention_mark.delete())
    finally:
        writer.close()


def test_finer_points_are_never_kept_for_longer_than_coarser_ones(engine: Engine) -> None:
    with pytest.raises(ConfigurationError, match="set series-5min first"):
        policy.set_period(engine, "default", "series-full", 61)
    for days in (0, 10**30):
        with pytest.raises(ConfigurationError, match="1 to 36500, or forever"):
            policy.set_period(engine, "default", "logs", days)
    for kind in ("series-full", "series-5min", "series"):
        policy.set_period(engine, "default", kind, 5)
    with pytest.raises(ConfigurationError, match=r"series-5min \(60 days\)"):
        policy.unset_period(engine, "default", "series-5min")
    assert policy.periods(engine, "default")["series-5min"] == 5
    assert policy.periods(engine, "finance")["series-5min"] == 60


def test_only_one_of_all_processes_removes_at_a_time(engine: Engine) -> None:
    first, second = Lease(engine, WORK), Lease(engine, WORK)
    assert first.take()
    assert not second.take()
    first.give_back(done=False)
    assert second.done_at() is None
    assert second.take()
    second.give_back(done=True)
    assert first.done_at() is not None
    # One that died holds it no longer than a while.
    assert first.take()
    with writing(engine) as connection:
        connection.execute(update(schema.lease).values(expires_at=time.time() - 1))
    assert second.take()
    first._renewed = 0.0
    assert not first.renew()
    fill(engine, NOW - 3000 * DAY)
    with pytest.raises(Stopped):
        run_round(engine, first, Throttle(1.0))


def test_a_removal_that_is_stopped_goes_on_the_next_time(engine: Engine) -> None:
    for number in range(40):
        put(engine, schema.event, id=f"e{number}", at=NOW)
    stop = threading.Event()
    pace = Throttle(0.5, stop)
    pace.rows = 16
    steps = pace.run(remove_old_data(engine, "default", NOW + 100 * DAY, pace))
    next(steps)
    stop.set()
    with pytest.raises(Stopped):
        next(steps)
    assert counts(engine)["event"] == 24
    assert gone_after(engine, NOW + 100 * DAY) == {"event": 24}


def test_the_service_removes_by_itself_and_tells_of_it(service: ServiceProcess) -> None:
    service.stop()
    fill(service.engine, time.time() - 500 * DAY)
    with ServiceProcess(
        service.data_dir,
        database_url=service.database_url,
        retention_interval=0.2,
        metrics_token="0123456789abcdef",
    ) as again:
        again.wait_for("removed old data")
        token = again.token()
        assert post_beat(again.url, token, full_beat()).ok
        assert counts(again.engine, "Scheduler-1")["cluster"] == 0
        text = metrics_of(again)
    assert 'daskscope_service_removed_rows_total{table="cluster"} 1.0' in text
    assert "daskscope_service_removal_age_seconds" in text


def metrics_of(service: ServiceProcess) -> str:
    headers = {"Authorization": "Bearer 0123456789abcdef"}
    return requests.get(f"{service.url}/metrics", headers=headers, timeout=30).text


def test_the_commands_show_set_and_run(service: ServiceProcess) -> None:
    where = service.database_options
    fill(service.engine, time.time() - 10 * DAY)
    done = daskscope("retention", "run", *where)
    assert done.stdout == "No data is old enough to remove.\n", done.stderr
    done = daskscope("retention", "set", "logs", 9, *where)
    assert done.stdout == "default keeps logs: 9 days\n", done.stderr
    done = daskscope("retention", "show", "--json", *where)
    assert json.loads(done.stdout) == {kind.name: kind.days for kind in policy.KINDS} | {"logs": 9}
    done = daskscope("retention", "run", *where)
    assert "default: 1 rows of log_record removed" in done.stdout
    done = daskscope("retention", "set", "logs", "default", *where)
    assert done.stdout == "default keeps logs: 30 days\n"
    done = daskscope("audit", "--limit", 2, "--json", *where)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    assert [entry["detail"] for entry in entries] == ["logs: 30 days (the default)", "logs: 9 days"]
    assert {entry["action"] for entry in entries} == {"retention changed"}


def test_what_cannot_be_set_is_refused_with_what_can(local_service: ServiceProcess) -> None:
    where = local_service.database_options
    for arguments, said in (
        (("logs", "soon"), "30, or forever, or default"),
        (("pictures", "3"), "series-full"),
        (
            ("logs", "3", "--workspace", "finanze"),
            "no workspace 'finanze'; the workspaces are: default",
        ),
        (("series-full", "90"), "set series-5min first"),
    ):
        done = daskscope("retention", "set", *arguments, *where)
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_the_help_and_the_docs_state_the_defaults() -> None:
    text = daskscope("retention", "--help").stdout
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    for kind in policy.KINDS:
        assert f"{kind.name:<14}{kind.days:>3}" in text, kind
        assert f"| `{kind.name}` | {kind.days} |" in page, kind


def test_a_marked_code_is_wanted_by_the_service(service: ServiceProcess) -> None:
    code, token = make_code(), service.token()
    frames = (CodeFrame(code.file, 12, code.hash),)
    beat = make_beat(make_cluster(), computations=(make_computation(frames=frames),), code=(code,))
    assert decode_reply(post_beat(service.url, token, beat).content).code_wanted == ()
    with writing(service.engine) as connection:
        connection.execute(update(schema.code).values(unused_since=1.0))
    assert decode_reply(post_beat(service.url, token, beat).content).code_wanted == ()
    with writing(service.engine) as connection:
        connection.execute(update(schema.code).values(unused_since=1.0))
    named = make_beat(beat.cluster, 2, computations=beat.computations)
    assert decode_reply(post_beat(service.url, token, named).content).code_wanted == (code.hash,)
