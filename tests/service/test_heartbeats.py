"""What ``POST /api/v1/heartbeats`` keeps, and what it refuses."""

from __future__ import annotations

import base64
import copy
import dataclasses
import functools
import gzip
import json
import operator
import random
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
import requests
from sqlalchemy import Table, select, update

from daskscope.codec import decode_reply, encode, pack_columns
from daskscope.protocol import (
    EARLIEST,
    MAX_AHEAD,
    MAX_AMOUNT,
    MAX_BEAT_BYTES,
    MAX_COUNT,
    MAX_NAME,
    MAX_TEXT,
    CodeFrame,
    Computation,
    Heartbeat,
    is_time,
)
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.ingest.code_wanted import MOST_HASHES
from tests.service.beats import (
    full_beat,
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_event,
    make_failure,
    make_status,
    make_task_group,
    post,
)
from tests.service_process import ServiceProcess

#: Columns of a task stream that take 16 MiB once they are decompressed.
BOMB = base64.b64encode(zlib.compress(bytes(2**24), 9)).decode()
#: Columns of one run that are well but for one number.
SECONDS_BEYOND = pack_columns([*[[0]] * 5, [1], [0], [0], [2**62], [0]])
AFTER_THE_END = pack_columns([*[[0]] * 4, [30_000], [1], *[[0]] * 4])

#: Where the rows of a beat are kept.
TABLES = {
    "computations": schema.computation,
    "task_groups": schema.task_group,
    "failures": schema.failure,
    "activities": schema.activity,
    "profiles": schema.profile,
    "task_streams": schema.task_stream,
    "code": schema.code,
}


@pytest.fixture
def workspace() -> str:
    return f"w-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def token(shared_service: ServiceProcess, workspace: str) -> str:
    return shared_service.token(workspace=workspace)


def rows(service: ServiceProcess, table: Table, workspace: str) -> list[dict[str, Any]]:
    with service.engine.connect() as connection:
        found = connection.execute(select(table).where(table.c.workspace == workspace))
        return [dict(row) for row in found.mappings()]


def row(service: ServiceProcess, table: Table, workspace: str) -> dict[str, Any]:
    (only,) = rows(service, table, workspace)
    return only


def edited(path: str, value: object) -> bytes:
    """Return a beat as JSON, with what is at ``path`` (``cluster.name``, ``code.0``) replaced."""
    document = json.loads(encode(full_beat()))
    *parents, last = path.split(".")
    place = document
    for part in parents:
        place = place[int(part) if isinstance(place, list) else part]
    place[int(last) if isinstance(place, list) else last] = value
    return json.dumps(document).encode()


def test_an_acknowledged_beat_is_stored_with_everything_in_it(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    beat = full_beat()
    before = time.time()

    answer = post(shared_service.url, token, beat)

    assert answer.status_code == 200
    reply = decode_reply(answer.content)
    assert reply.interval == beat.cluster.interval
    assert reply.url == f"{shared_service.url}/clusters/{beat.cluster.id}"
    assert before <= reply.server_time <= time.time()
    cluster = row(shared_service, schema.cluster, workspace)
    assert cluster["id"] == beat.cluster.id
    assert cluster["environment"] == asdict(beat.cluster.environment)
    assert cluster["tags"] == beat.cluster.tags
    assert cluster["drops"] == {"events": 2}
    assert cluster["first_seen_at"] == cluster["last_seen_at"] == reply.server_time
    assert cluster["status_at"] == beat.status.at
    assert cluster["tasks"] == beat.status.tasks
    computation = row(shared_service, schema.computation, workspace)
    (sent,) = beat.computations
    expected = json.loads(json.dumps(asdict(sent)))
    assert {name: computation[name] for name in expected} == expected
    groups = {group["name"]: group for group in rows(shared_service, schema.task_group, workspace)}
    for group in beat.task_groups:
        expected = json.loads(json.dumps(asdict(group)))
        assert {name: groups[group.name][name] for name in expected} == expected
    failures = rows(shared_service, schema.failure, workspace)
    assert {failure["computation"] for failure in failures} == {"c1", ""}
    for part in (beat.cluster, beat.status):
        for name in (
            *("deployment", "prices", "settings", "held_by", "scheduler", "gpu"),
            *("cost", "idle_cost", "mismatches", "busy_by"),
        ):
            if hasattr(part, name):
                assert cluster[name] == json.loads(json.dumps(asdict(part)))[name], name
    activities = {
        activity["prefix"]: activity["seconds"]
        for activity in rows(shared_service, schema.activity, workspace)
    }
    assert activities == {"sum": {"thread-cpu": 3.5}, "": {"idle": 400.0}}
    for table, sent_rows in (
        (schema.worker_loss, beat.worker_losses),
        (schema.event, beat.events),
        (schema.code, beat.code),
        (schema.profile, beat.profiles),
        (schema.shutdown, beat.shutdowns),
    ):
        stored = row(shared_service, table, workspace)
        expected = json.loads(json.dumps(asdict(sent_rows[0])))
        expected.pop("hash", None)  # another is kept: test_code_at_rest
        assert {name: stored[name] for name in expected} == expected


def test_a_beat_that_comes_twice_changes_nothing(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    beat = full_beat()
    post(shared_service.url, token, beat)
    tables = [table for table in schema.metadata.sorted_tables if "seq" in table.c]
    once = {table.name: rows(shared_service, table, workspace) for table in tables}

    assert post(shared_service.url, token, beat).ok

    twice = {table.name: rows(shared_service, table, workspace) for table in tables}
    # The second beat was heard, too; and the service writes the others in rounds of its own.
    for one in (*once["cluster"], *twice["cluster"], *once["computation"], *twice["computation"]):
        for column in ("last_seen_at", "judge_at", "job", "job_due_at"):
            one.pop(column, None)
    assert twice == once


def test_a_beat_that_comes_after_its_successor_does_not_overwrite_it(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    cluster = make_cluster()
    later = make_beat(
        cluster,
        seq=8,
        status=make_status(workers=8),
        computations=(make_computation(completed=80),),
        failures=(make_failure(count=8),),
    )
    earlier = make_beat(
        cluster,
        seq=7,
        status=make_status(workers=7),
        computations=(make_computation(completed=70), make_computation("c0")),
        failures=(make_failure(count=7),),
    )

    assert post(shared_service.url, token, later).ok
    seen = row(shared_service, schema.cluster, workspace)["last_seen_at"]
    assert post(shared_service.url, token, earlier).ok

    stored = row(shared_service, schema.cluster, workspace)
    assert (stored["workers"], stored["seq"]) == (8, 8)
    assert stored["last_seen_at"] >= seen
    computations = rows(shared_service, schema.computation, workspace)
    assert {c["id"]: c["completed"] for c in computations} == {"c1": 80, "c0": 40}
    assert row(shared_service, schema.failure, workspace)["count"] == 8


@pytest.mark.parametrize(
    ("ended", "later", "status"),
    [
        # As exporters did before what has ended stayed ended: lost results are computed again, fail
        # or are given up.
        ({"status": "finished"}, {"status": "running"}, "finished"),
        ({"status": "finished"}, {"status": "erred", "erred": 3}, "finished"),
        ({"status": "cancelled", "cancelled": 2}, {"status": "running"}, "cancelled"),
        ({"status": "erred", "erred": 1}, {"status": "running", "erred": 1}, "erred"),
        # A failed task is retried; its own, or of one that it needs.
        ({"status": "erred", "erred": 1}, {"status": "running", "retried": 1}, "running"),
        ({"status": "erred"}, {"status": "running"}, "running"),
        ({"status": "erred"}, {"status": "finished"}, "finished"),
        ({"status": "running"}, {"status": "finished"}, "finished"),
    ],
)
def test_a_computation_that_has_ended_is_not_opened_again_but_by_a_retry(
    shared_service: ServiceProcess,
    token: str,
    workspace: str,
    ended: dict[str, Any],
    later: dict[str, Any],
    status: str,
) -> None:
    now = time.time()

    def sent_as(fields: dict[str, Any], at: float, completed: int) -> Computation:
        at_end = None if fields["status"] == "running" else at
        usual: dict[str, Any] = {"erred": 0, "tasks": 9, "states": {"memory": 4}}
        times = {"started_at": now - 30, "stopped_at": at_end}
        return make_computation(**(usual | fields | times), completed=completed)

    cluster = make_cluster()
    first, second = sent_as(ended, now - 20, 9), sent_as(later, now - 10, 12)
    for seq, sent in enumerate((first, second), 1):
        assert post(shared_service.url, token, make_beat(cluster, seq, computations=(sent,))).ok
    stored = row(shared_service, schema.computation, workspace)
    kept = first if status == ended["status"] else second
    assert (stored["status"], stored["stopped_at"]) == (kept.status, kept.stopped_at)
    counts = ("erred", "retried", "cancelled")
    assert [stored[name] for name in counts] == [getattr(kept, name) for name in counts]
    # How often its tasks ran, and where they are now, is told all the same.
    assert stored["completed"] == 12


def test_a_later_beat_replaces_all_but_when_and_by_whom_the_cluster_was_first_seen(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    cluster = make_cluster(user="ada")
    post(shared_service.url, token, make_beat(cluster, 1))
    first = row(shared_service, schema.cluster, workspace)

    other = dataclasses.replace(cluster, user="grace", name="renamed")
    stopped = make_beat(other, 2, phase="stop", status=make_status(stopped_at=time.time()))
    post(shared_service.url, token, stopped)

    last = row(shared_service, schema.cluster, workspace)
    assert (last["user"], last["name"]) == ("ada", "renamed")
    assert last["stopped_at"] == stopped.status.stopped_at
    assert last["first_seen_at"] == first["first_seen_at"]
    assert last["last_seen_at"] > first["last_seen_at"]


def test_tags_that_change_are_changed_and_those_that_another_process_wrote_last_do_not_stay(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    started = time.time() - 1000  # old enough that its sums are not due with each beat
    cluster = make_cluster(started_at=started, tags={"team": "climate"})
    tags = []
    for seq, value in enumerate(("climate", "climate", "ocean", "ocean"), 1):
        now = dataclasses.replace(cluster, tags={"team": value})
        post(shared_service.url, token, make_beat(now, seq))
        tags.append(row(shared_service, schema.cluster, workspace)["tags"]["team"])
    assert tags == ["climate", "climate", "ocean", "ocean"]

    with writing(shared_service.engine) as connection:
        of_another = update(schema.cluster).where(schema.cluster.c.workspace == workspace)
        connection.execute(of_another.values(tags={"team": "ice"}))
    goodbye = make_beat(now, 5, phase="stop", status=make_status(stopped_at=time.time()))
    post(shared_service.url, token, goodbye)
    assert row(shared_service, schema.cluster, workspace)["tags"] == {"team": "ocean"}


def test_the_same_cluster_id_in_two_workspaces_is_two_clusters(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    cluster = make_cluster()
    other_workspace = f"{workspace}-other"
    other_token = shared_service.token(workspace=other_workspace)

    post(shared_service.url, token, make_beat(cluster, 5, status=make_status(workers=5)))
    post(shared_service.url, other_token, make_beat(cluster, 6, status=make_status(workers=6)))

    assert row(shared_service, schema.cluster, workspace)["workers"] == 5
    assert row(shared_service, schema.cluster, other_workspace)["workers"] == 6


def test_code_is_wanted_until_someone_sends_it(shared_service: ServiceProcess, token: str) -> None:
    code = make_code(text=f"uuid = '{uuid.uuid4()}'\n")
    named = (make_computation(frames=(CodeFrame(code.file, 12, code.hash), CodeFrame("x", 1))),)

    def wanted(beat: Heartbeat) -> tuple[str, ...]:
        return decode_reply(post(shared_service.url, token, beat).content).code_wanted

    assert wanted(make_beat(computations=named)) == (code.hash,)
    assert wanted(make_beat(computations=named, code=(code,))) == ()
    assert wanted(make_beat(computations=named)) == ()  # of another cluster
    other = shared_service.token(workspace=f"w-{uuid.uuid4()}")
    answer = post(shared_service.url, other, make_beat(computations=named))
    assert decode_reply(answer.content).code_wanted == (code.hash,)


def test_of_very_much_code_in_one_beat_only_some_is_asked_for(
    shared_service: ServiceProcess, token: str
) -> None:
    # Each costs a look-up, for which all workspaces' beats wait.
    named = [f"{uuid.uuid4()}" for _ in range(MOST_HASHES + 20)]
    computations = tuple(
        make_computation(f"c{first}", frames=tuple(CodeFrame("x", 1, one) for one in some))
        for first in range(0, len(named), 100)
        if (some := named[first : first + 100])
    )
    answer = post(shared_service.url, token, make_beat(computations=computations))
    wanted = decode_reply(answer.content).code_wanted
    assert len(set(wanted)) == MOST_HASHES
    assert set(wanted) < set(named)


def test_unknown_fields_are_ignored(shared_service: ServiceProcess, token: str) -> None:
    assert post(shared_service.url, token, edited("cluster.galaxy", {"arm": [1]})).ok


def test_a_character_that_postgresql_lacks_is_replaced_and_the_rest_is_kept(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    message = "a\0b \\u0000 \\\0"  # twice the character; between them how JSON writes it, as text
    beat = make_beat(make_cluster(tags={"k": "\0"}), failures=(make_failure(message=message),))
    assert post(shared_service.url, token, beat).ok
    stored = row(shared_service, schema.failure, workspace)["message"]
    assert stored == message.replace("\0", "\ufffd")
    assert row(shared_service, schema.cluster, workspace)["tags"] == {"k": "\ufffd"}


def test_the_largest_names_and_numbers_are_stored(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    rng = random.Random(1)  # what does not compress, four bytes each
    name = "".join(chr(rng.randrange(0x10000, 0x11000)) for _ in range(MAX_NAME))
    computation = make_computation("c" * 100, user=name, tasks=MAX_COUNT, graph_bytes=MAX_COUNT)
    group = make_task_group("c" * 100, name, prefix=name)
    cluster = make_cluster("c" * 200, user=name)
    beat = make_beat(cluster, computations=(computation,), task_groups=(group,))
    assert post(shared_service.url, token, beat).status_code == 200
    assert row(shared_service, schema.computation, workspace)["tasks"] == MAX_COUNT
    assert row(shared_service, schema.task_group, workspace)["name"] == name


def test_a_gzipped_beat_is_stored(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    body = gzip.compress(encode(make_beat()))
    assert post(shared_service.url, token, body, Content_Encoding="gzip").ok
    assert row(shared_service, schema.cluster, workspace)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("status.workers", "four", "$.status.workers"),
        ("status.workers", None, "$.status.workers"),
        ("status", {}, "$.status.at"),
        ("cluster.id", "a/b", "$.cluster.id"),
        ("cluster.id", "", "$.cluster.id"),
        ("cluster.id", "..", "$.cluster.id"),
        ("cluster.id", "Scheduler-1\n", "$.cluster.id"),
        ("cluster.user", "u" * (MAX_NAME + 1), "$.cluster.user"),
        ("phase", "dance", "$.phase"),
        ("computations", 7, "$.computations"),
        ("protocol", "2.0", "$.protocol"),
        ("protocol", "", "$.protocol"),
    ],
)
def test_a_malformed_beat_is_refused_with_the_field_that_is_wrong(
    shared_service: ServiceProcess,
    token: str,
    workspace: str,
    path: str,
    value: object,
    field: str,
) -> None:
    answer = post(shared_service.url, token, edited(path, value))

    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["field"] == field
    assert field in problem["detail"]
    assert rows(shared_service, schema.cluster, workspace) == []


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("computations.0.frames.0.line", "12", "$.computations[0].frames[0].line"),
        ("computations.0.user", "u" * 5000, "$.computations[0].user"),
        ("computations.0.id", "i" * 101, "$.computations[0].id"),
        ("task_groups.1.durations", [1, 2.5], "$.task_groups[1].durations[1]"),
        ("task_groups.0.name", "n" * (MAX_NAME + 1), "$.task_groups[0].name"),
        ("task_groups.0", None, "$.task_groups[0]"),
        ("failures.0.message", "m" * (MAX_TEXT + 1), "$.failures[0].message"),
        ("activities.0.seconds", {"k" * (MAX_NAME + 1): 1.0}, "$.activities[0].seconds"),
        ("code.0.text", "tampered()", "$.code[0].hash"),
        ("code.0.cut", True, "$.code[0].hash"),
        ("profiles.0.samples", [], "$.profiles[0].samples"),
        ("profiles.0.parent", [-1, 0], "$.profiles[0].samples"),
        ("profiles.0.parent", [0], "$.profiles[0].parent"),
        ("profiles.0.parent", [5], "$.profiles[0].parent"),
        ("profiles.0.line", [99], "$.profiles[0].line"),
        ("profiles.0.lines", [], "$.profiles[0].line"),
        ("task_streams.0.columns", "x", "$.task_streams[0].columns"),
        ("task_streams.0.columns", "no base64!", "$.task_streams[0].columns"),
        ("task_streams.0.columns", BOMB, "$.task_streams[0].columns"),
        ("task_streams.0.columns", pack_columns([[]] * 10), "$.task_streams[0].columns"),
        ("task_streams.0.columns", pack_columns([[1]] * 9), "$.task_streams[0].columns"),
        ("task_streams.0.columns", pack_columns([[-1]] * 10), "$.task_streams[0].columns"),
        ("task_streams.0.columns", pack_columns([[2**63 - 1]] * 10), "$.task_streams[0].columns"),
        ("task_streams.0.columns", SECONDS_BEYOND, "$.task_streams[0].columns"),
        ("task_streams.0.columns", AFTER_THE_END, "$.task_streams[0].columns"),
        ("task_streams.0.workers", [], "$.task_streams[0].columns"),
        ("task_streams.0.prefixes", ["load"], "$.task_streams[0].columns"),
        ("task_streams.0.runs", 5, "$.task_streams[0].runs"),
        ("task_streams.0.merged", 1, "$.task_streams[0].merged"),
        # No address of a page can hold them.
        ("computations.0.id", "a/b", "$.computations[0].id"),
        ("computations.0.id", "..", "$.computations[0].id"),
        ("failures.0.fingerprint", "", "$.failures[0].fingerprint"),
        ("failures.0.fingerprint", "1:a/b", "$.failures[0].fingerprint"),
    ],
)
def test_a_row_that_cannot_be_right_is_left_out_and_the_rest_is_stored(
    shared_service: ServiceProcess,
    token: str,
    workspace: str,
    path: str,
    value: object,
    field: str,
) -> None:
    answer = post(shared_service.url, token, edited(path, value))

    assert answer.status_code == 200
    reply = decode_reply(answer.content)
    assert reply.rows_left_out == 1
    [correction] = reply.corrections
    assert correction.field.startswith(field)
    assert correction.left_out
    assert correction.why
    name, sent = path.partition(".")[0], full_beat()
    assert len(rows(shared_service, TABLES[name], workspace)) == len(getattr(sent, name)) - 1
    assert len(rows(shared_service, schema.event, workspace)) == len(sent.events)


@pytest.mark.parametrize(
    ("path", "value", "stored"),
    [
        ("status.workers", 2**64, MAX_COUNT),
        ("status.workers", -1, 0),
        ("status.idle_seconds", -0.001, 0.0),
        ("status.cost", 1e300, MAX_AMOUNT),
        ("status.worker_seconds", {"busy": -3.0}, {"busy": 0.0}),
        ("status.tasks", {str(n): n for n in range(500)}, {str(n): n for n in range(100)}),
        ("cluster.interval", 0, 0.01),
        ("cluster.started_at", 0.0, EARLIEST),
        ("cluster.tags", {str(n): "t" for n in range(500)}, {str(n): "t" for n in range(100)}),
        ("task_groups.0.output_bytes", 2**70, MAX_COUNT),
        ("task_groups.0.shortest", -1e-9, 0.0),
        ("failures.0.count", -(2**63), 0),
        ("computations.0.seconds", {"compute": 1e15, "transfer": -1e15}, None),
        # Fields that contradict each other: an end is not before its start.
        ("computations.0.stopped_at", EARLIEST, "started_at"),
        ("task_groups.0.stopped_at", EARLIEST, "started_at"),
        ("task_groups.0.longest", 0.0, "shortest"),
        ("failures.0.last_at", EARLIEST, "first_at"),
        ("profiles.0.stopped_at", EARLIEST, "started_at"),
    ],
)
def test_a_number_out_of_bounds_gives_way_to_the_nearest_and_the_answer_says_so(
    shared_service: ServiceProcess,
    token: str,
    workspace: str,
    path: str,
    value: object,
    stored: object,
) -> None:
    sent = edited(path, value)
    answer = post(shared_service.url, token, sent)

    reply = decode_reply(answer.content)
    assert reply.rows_left_out == 0
    assert reply.corrections
    assert all(one.field.startswith("$." + path.split(".")[0]) for one in reply.corrections)
    kind, *_, column = path.split(".")
    found = rows(shared_service, TABLES.get(kind, schema.cluster), workspace)
    expected = {"compute": MAX_AMOUNT, "transfer": 0.0} if stored is None else stored
    if isinstance(stored, str):
        expected = json.loads(sent)[kind][0][stored]
    assert expected in [one[column] for one in found]


def test_times_ahead_of_the_services_clock_are_those_of_tomorrow(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    year_9999 = 253_402_300_799.0
    beat = make_beat(
        make_cluster(started_at=year_9999),
        status=make_status(at=year_9999),
        computations=(make_computation(started_at=year_9999, stopped_at=year_9999),),
    )
    before = time.time()
    reply = decode_reply(post(shared_service.url, token, beat).content)
    tomorrow = (before + MAX_AHEAD, time.time() + MAX_AHEAD)

    assert {one.field for one in reply.corrections} >= {"$.cluster.started_at", "$.status.at"}
    stored = row(shared_service, schema.cluster, workspace)
    computed = row(shared_service, schema.computation, workspace)
    for at in (stored["status_at"], computed["stopped_at"]):
        assert tomorrow[0] <= at <= tomorrow[1]
    assert before <= stored["started_at"] <= time.time()  # it has started before it says so


def test_each_time_far_ahead_is_corrected_also_if_it_is_the_only_fault(
    shared_service: ServiceProcess, token: str
) -> None:
    beat = json.loads(encode(full_beat(make_cluster())))
    places = [*_times_in(beat)]
    assert ("status", "connected", 0, "since") in places
    for seq, place in enumerate(places, start=1):
        sent = copy.deepcopy(beat) | {"seq": beat["seq"] + seq}
        *path, name = place
        functools.reduce(operator.getitem, path, sent)[name] = 1e308
        reply = decode_reply(post(shared_service.url, token, json.dumps(sent).encode()).content)
        fields = {one.field for one in reply.corrections}
        assert any(field.endswith(f".{name}") for field in fields), (place, fields)
        listed = requests.get(
            f"{shared_service.url}/api/v1/clusters",
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )
        assert listed.ok, place


def _times_in(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the times in a beat, except that of the beat itself."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in parts:
        if isinstance(part, dict | list):
            yield from _times_in(part, *path, name)
        elif path and isinstance(part, int | float) and (name == "since" or is_time(str(name))):
            yield (*path, name)


def test_clusters_of_clocks_far_ahead_do_not_head_the_list(
    shared_service: ServiceProcess, token: str
) -> None:
    ahead = [make_cluster(started_at=253_402_300_799.0) for _ in range(12)]
    for cluster in ahead:
        assert post(shared_service.url, token, make_beat(cluster)).ok
    honest = make_cluster(started_at=time.time())
    assert post(shared_service.url, token, make_beat(honest)).ok

    listed = requests.get(
        f"{shared_service.url}/api/v1/clusters",
        params={"limit": 10},
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    ).json()["items"]
    assert listed[0]["id"] == honest.id
    assert len(listed) == 10


def test_a_beat_of_a_clock_far_ahead_gives_way_to_later_ones_once_that_is_set_right(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    cluster = make_cluster()
    ahead = make_beat(cluster, 2**53, status=make_status(workers=1))
    assert post(shared_service.url, token, ahead).ok
    # Schedulers number beats by their clock's milliseconds: that is what it says in an hour.
    later = make_beat(cluster, int((time.time() + 3600) * 1000), status=make_status(workers=2))
    assert post(shared_service.url, token, later).ok
    assert row(shared_service, schema.cluster, workspace)["workers"] == 2


def test_another_version_is_told_which_one_is_understood_even_if_its_fields_differ(
    shared_service: ServiceProcess, token: str
) -> None:
    answer = post(shared_service.url, token, b'{"protocol": "7.3", "herd": []}')
    assert answer.status_code == 400
    assert "supports version 1.x" in answer.json()["detail"]
    assert "7.3" in answer.json()["detail"]
    assert post(shared_service.url, token, edited("protocol", "1.99")).ok


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"seq": NaN}',
        b"[" * 100_000,
        b'{"of a later version": ' + b"[" * 100_000,
        b'{"of a later version": ' * 100_000,
    ],
)
def test_what_is_not_a_beat_at_all_is_refused(
    shared_service: ServiceProcess, token: str, body: bytes
) -> None:
    answer = post(shared_service.url, token, body)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_an_oversized_beat_is_refused_and_the_answer_arrives(
    shared_service: ServiceProcess, token: str
) -> None:
    events = tuple(make_event(id=f"e{i}", message="x" * MAX_TEXT) for i in range(300))
    body = encode(make_beat(events=events))
    assert len(body) > MAX_BEAT_BYTES
    assert post(shared_service.url, token, body).status_code == 413
    zipped = gzip.compress(body)
    assert post(shared_service.url, token, zipped, Content_Encoding="gzip").status_code == 413


@pytest.mark.sqlite
def test_a_gzip_bomb_is_refused(shared_service: ServiceProcess, token: str) -> None:
    bomb = gzip.compress(b"\0" * (256 * 1024 * 1024), compresslevel=9)
    assert len(bomb) < MAX_BEAT_BYTES
    answer = post(shared_service.url, token, bomb, Content_Encoding="gzip")
    assert answer.status_code == 413
    assert "compressed or decompressed" in answer.json()["detail"]


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"not gzip", "gzip", 400),
        (gzip.compress(encode(make_beat()))[:-9], "gzip", 400),
        (gzip.compress(encode(make_beat())) + b"more", "gzip", 400),
        (b"whatever", "br", 415),
    ],
)
def test_a_broken_or_unknown_encoding_is_refused(
    shared_service: ServiceProcess, token: str, body: bytes, encoding: str, status: int
) -> None:
    answer = post(shared_service.url, token, body, Content_Encoding=encoding)
    assert answer.status_code == status


def test_a_body_without_a_length_is_read(shared_service: ServiceProcess, token: str) -> None:
    body = encode(make_beat())
    answer = requests.post(
        f"{shared_service.url}/api/v1/heartbeats",
        data=iter([body[:100], body[100:]]),  # chunked
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    )
    assert answer.ok


def test_a_beat_for_another_workspace_is_refused_and_both_are_named(
    shared_service: ServiceProcess, token: str, workspace: str
) -> None:
    answer = post(shared_service.url, token, make_beat(make_cluster(workspace="finance")))
    assert answer.status_code == 403
    assert "finance" in answer.json()["detail"]
    assert workspace in answer.json()["detail"]
    assert post(shared_service.url, token, make_beat(make_cluster(workspace=workspace))).ok


def test_an_acknowledged_beat_outlives_a_killed_service(service: ServiceProcess) -> None:
    token = service.token()
    beat = full_beat()
    assert post(service.url, token, beat).ok
    service.stop("KILL")

    stored = row(service, schema.cluster, "default")
    assert stored["id"] == beat.cluster.id
    service.start()  # the port is free again, and the database opens
    assert post(service.url, token, replace(beat, seq=2)).ok
