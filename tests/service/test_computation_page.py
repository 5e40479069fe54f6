"""The page of a computation: what it draws, what it says where little or too much is known."""

from __future__ import annotations

import csv
import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

from daskscope import names
from daskscope.names import DURATION_BOUNDS
from daskscope_service.db import schema
from daskscope_service.pages import graph, source
from daskscope_service.pages.cluster_context import Totals, counter_growth
from daskscope_service.pages.computation import MOST_GROUPS
from daskscope_service.pages.histogram import STEP, histograms
from daskscope_service.pages.waterfall import MOST_GROUPS as MOST_DRAWN
from daskscope_service.pages.waterfall import MOST_RUNS, waterfall
from daskscope_service.telemetry.spans import Span, Trace
from tests.seed_series import series
from tests.seed_spans import spans
from tests.seed_writer import SeedWriter
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_computation,
    make_profile,
    make_task_group,
    post,
)
from tests.service.pages import words
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

WORKSPACE = "computation-page"
NOW = time.time()


def group(name: str, **values: Any) -> dict[str, Any]:
    return {
        "name": name,
        "prefix": name.split("-")[0],
        "tasks": 4,
        "completed": 4,
        "erred": 0,
        "retried": 0,
        "states": {"released": 4},
        "seconds": {"compute": 1.0},
        "output_bytes": 0,
        "dependencies": [],
        "durations": [0] * (len(DURATION_BOUNDS) + 1),
        "shortest": None,
        "longest": None,
        "started_at": NOW,
        "stopped_at": NOW + 1,
        "types": {},
    } | values


def read(name: str, **values: Any) -> dict[str, Any]:
    """Return a group as it is read."""
    return {"done": 4} | group(name, **values)


# --- drawings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'def f(x: int) -> str:\n    """Two\n    lines."""\n    return f"{x!r}"  # so it is\n',
        "\n\n  x = [1,\r\n 2]\n",
        "%timeit nothing ?? !ls\n'unfinished",
        "",
    ],
)
def test_code_is_the_same_after_it_is_highlighted(text: str) -> None:
    lines = source.highlighted(text)
    assert ["".join(part for _, part in line) for line in lines] == text.split("\n")


def test_a_text_over_several_lines_is_a_text_in_each() -> None:
    kinds = [[kind for kind, _ in line] for line in source.highlighted('"""a\nb"""\nif x: 1')]
    assert kinds == [["string"], ["string"], ["keyword", "", "number"]]


def test_code_beyond_the_bound_stays_plain_and_the_calling_frame_comes_first() -> None:
    long = "x = 1\n" * (source.MOST_CHARACTERS // 8)
    frames: list[dict[str, Any]] = [
        {"text": long, "first_line": 1},
        {"text": None},
        {"text": long, "first_line": 9},
    ]
    outer, none, inner = source.sources(frames)
    assert none is None
    assert outer is not None
    assert inner is not None
    assert (inner.first, inner.lines[0][-1][0]) == (9, "number")
    assert outer.lines[0] == [("", "x = 1")]


def test_histograms_of_a_computation_share_one_scale() -> None:
    quick, slow = [0] * (len(DURATION_BOUNDS) + 1), [0] * (len(DURATION_BOUNDS) + 1)
    quick[1] = 4
    slow[5], slow[-1] = 3, 1
    groups = [group("a", durations=quick), group("b", durations=slow), group("c")]
    found = histograms([*groups, group("elsewhere", durations=quick)], groups)
    assert set(found) == {"a", "b"}
    assert [column.x for column in found["a"].columns] == [0]
    assert [column.x for column in found["b"].columns] == [4 * STEP, (len(slow) - 2) * STEP]
    assert found["a"].width == found["b"].width
    assert found["b"].columns[0].words == "3 task runs 100 ms to 300 ms"
    assert found["b"].columns[1].words.startswith("1 task run more than ")
    assert found["b"].words == "4 task runs; half of them took 100 ms to 300 ms or less"


def test_a_mean_is_of_the_runs_that_a_histogram_shows() -> None:
    quick = [4] + [0] * len(DURATION_BOUNDS)
    of_all = {"durations": quick, "completed": 4, "seconds": {"compute": 0.8}}
    groups = [group("a", **of_all), group("b", **of_all, retried=4), group("c", **of_all, erred=1)]
    found = histograms(groups, groups)
    assert [found[name].mean for name in "abc"] == [0.2, None, None]


def test_a_group_that_took_longer_is_a_higher_box_and_its_state_is_a_word() -> None:
    drawn = graph.layout(
        [
            read("long", seconds={"compute": 30.0}),
            read("short", dependencies=["long"], done=1, completed=1, erred=3),
        ]
    )
    assert drawn is not None
    long, short = drawn.nodes
    assert long.height > short.height
    assert short.notes == ("1 / 4 erred", "1.0 s, 3\N{NO-BREAK SPACE}%")
    assert not drawn.joined


def test_very_many_groups_are_drawn_by_prefix() -> None:
    groups = [read(f"read-{i}") for i in range(50)]
    groups += [read(f"sum-{i}", dependencies=[f"read-{i}"], erred=i % 2) for i in range(50)]
    drawn = graph.layout(groups)
    assert drawn is not None
    assert drawn.joined
    assert [(node.name, node.notes[0]) for node in drawn.nodes] == [
        ("read", "200 / 200 done"),
        ("sum", "200 / 200 erred"),
    ]
    assert len(drawn.edges) == 1


def test_groups_of_one_prefix_that_need_very_many_others_are_joined_in_one_look_at_each() -> None:
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    needed = [[Name(f"other-{n}-{m}") for m in range(50)] for n in range(100)]
    groups = [read(f"read-{n}", dependencies=names) for n, names in enumerate(needed)]
    groups.append(read("sum-1", dependencies=["read-1"]))

    drawn = graph.layout(groups)

    assert drawn is not None
    assert len(drawn.edges) == 1
    assert Name.compared <= 2 * sum(map(len, needed))


def test_totals_that_are_new_or_started_anew_count_whole() -> None:
    before: Totals = {("a", "thread-cpu"): 5.0, ("a", "idle"): 9.0, ("b", "serialize"): 1.0}
    after: Totals = {
        ("a", "thread-cpu"): 8.0,
        ("a", "idle"): 2.0,
        ("b", "serialize"): 1.5,
        ("b", "deserialize"): 0.25,
        ("c", "thread-cpu"): 4.0,
    }
    assert counter_growth(before, after) == {"thread-cpu": 7.0, "idle": 2.0, "serialise": 0.75}


def test_a_waterfall_of_too_much_keeps_what_failed_and_what_took_longest() -> None:
    groups = [read(f"g-{i}", stopped_at=NOW + 1 + i) for i in range(MOST_DRAWN + 20)]
    groups[0] |= {"erred": 1}
    groups.append(read("later", started_at=None, stopped_at=None, done=0, completed=0))
    runs = [
        Span(f"{i}.{turn}", f"s{i}", names.SPAN_TASK.of("read"), NOW, NOW + 1 + turn, "unset", {})
        for i in range(40)
        for turn in range(10)
    ]
    runs[7] = Span("bad", "s0", names.SPAN_TASK.of("read"), NOW, NOW + 0.1, "error", {})
    above = [
        Span(
            f"s{i}", "root", names.SPAN_TASK_GROUP.of("read"), NOW, NOW + 1, "unset",
            {names.TASK_GROUP_NAME: f"g-{i}", names.TASK_GROUP_SAMPLED: 10},
        )
        for i in range(40)
    ]  # fmt: skip
    computation = {
        "task_groups": groups,
        "started_at": NOW,
        "duration": 90.0,
        "status": "erred",
        "lost_runs": 0,
    }
    fall = waterfall(computation, [], Trace((*above, *runs)))
    assert len(fall.rows) == MOST_DRAWN
    assert (fall.others, fall.waiting) == (20, 1)
    assert fall.rows[0].name == "g-0"
    assert "bad" not in {row.word for row in fall.rows}
    assert "erred" in {run.outcome for run in fall.rows[0].runs}
    assert fall.runs == MOST_RUNS
    assert fall.runs_read == 400
    assert [words for _, words in fall.ticks] == ["0 s", "30.0 s", "1 min", "1 min 30 s"]


def test_a_waterfall_has_the_groups_whose_runs_all_ended_with_their_workers() -> None:
    unknown: dict[str, Any] = {"started_at": None, "stopped_at": None, "done": 0, "completed": 0}
    groups = [
        read("grow-1", prefix="grow", erred=2, **unknown),
        read("grow-2", prefix="again", **unknown),
        read("later", prefix="later", **unknown),
    ]
    computation: dict[str, Any] = {
        "task_groups": groups,
        "started_at": NOW,
        "duration": 20.0,
        "status": "erred",
        "lost_runs": 5,
    }
    fall = waterfall(computation, [{"tasks": {"again": 1}}], Trace())
    assert [(row.name, row.died, row.bar.x, row.bar.width) for row in fall.rows] == [
        ("grow-1", True, 0.0, 100.0),
        ("grow-2", True, 0.0, 100.0),
    ]
    assert fall.waiting == 1
    # Without a worker that it lost, nothing is known to have run.
    assert waterfall(computation | {"lost_runs": 0}, [], Trace()).rows == []


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def get(shared_service: ServiceProcess) -> Callable[[str], str]:
    writer = SeedWriter(WORKSPACE, NOW)
    # Series have numbers of their own in the whole database.
    writer.chance = random.Random(11)
    cluster = writer.cluster("Scheduler-1", name="one", user="li", started=-5000, workers=2)
    series(writer, cluster, -5000, 0, workers=2)
    code = writer.code("/home/li/build.py", 1, "def build():\n    return 'x<y'\n")
    erred = writer.computation(cluster, "erred", "erred", -2000, -1700, code, call=2)
    spans(writer, erred, failed_in="hash-join-p2p")
    writer.computation(cluster, "brief", "finished", -1500, -1499.5, None, call=1)
    other = writer.cluster("Scheduler-2", name="two", user="li", started=-5000, workers=2)
    writer.computation(other, "blind", "finished", -2000, -1700, (), call=1)
    wide = writer.computation(other, "wide", "running", -90, None, (), call=1)
    for i in range(2 * MOST_GROUPS):
        writer.add(
            schema.task_group,
            cluster=wide[0],
            computation=wide[1],
            seq=100,
            **group(f"w{i:03}", seconds={"compute": float(i)}, started_at=NOW - 80),
        )
    for i, of in enumerate(("erred", "erred", "brief")):
        writer.add(
            schema.log_record,
            id=f"page-{i}",
            cluster=cluster,
            at=NOW - 1900 + i,
            severity=13,
            event_name="",
            body=f"record {i} of {of}",
            attributes={names.COMPUTATION_ID: of},
            trace_id=None,
            span_id=None,
        )
    for i in range(600):
        writer.add(
            schema.log_record,
            id=f"others-{i}",
            cluster=other,
            at=NOW - 1800 + i / 100,
            severity=13,
            event_name="",
            body="of another",
            attributes={},
            trace_id=None,
            span_id=None,
        )
    writer.write(shared_service.engine)
    session = requests.Session()
    token = shared_service.token(workspace=WORKSPACE)
    session.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)

    def ask(path: str) -> str:
        answer = session.get(shared_service.url + path, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.text

    return ask


def test_the_threads_time_adds_up_to_all_that_they_had(get: Callable[[str], str]) -> None:
    page = words(get("/clusters/Scheduler-1/computations/erred"))
    found = re.search(r"about (\S+) min(?: (\S+) s)? over (\S+) min(?: (\S+) s)?, including", page)
    assert found is not None, page
    had, length = (
        60 * int(found[n]) + int(found[n + 1] or 0) for n in (1, 3)
    )  # eight threads, of which each had all of the time
    assert had == pytest.approx(8 * length, rel=0.02)
    assert length == pytest.approx(300, abs=25)
    for word in (
        "computing on a CPU",
        "in tasks that use no CPU",
        "serialising and compressing",
        "idle",
    ):
        assert word in page


@pytest.mark.parametrize(("seconds", "beyond"), [(30.0, True), (58.0, False)])
def test_profiles_that_cover_more_than_its_time_say_so(
    shared_service: ServiceProcess, seconds: float, beyond: bool
) -> None:
    cluster, now = make_cluster(), time.time()
    token = shared_service.token(workspace=WORKSPACE)
    ran = make_computation(
        status="finished", started_at=now - seconds, stopped_at=now, completed=100, erred=0
    )
    profile = make_profile(started_at=now - 60, stopped_at=now)
    beat = make_beat(cluster, computations=(ran,), profiles=(profile,))
    assert post(shared_service.url, token, beat).ok
    session = requests.Session()
    session.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)
    url = f"{shared_service.url}/clusters/{cluster.id}/computations/{ran.id}"
    page = words(session.get(url, timeout=30).text)
    assert "including other work at the same time" in page
    said = "because the profiles cover 1 min, work before and after it." in page
    assert said == beyond


def test_transfers_beside_the_threads_are_said_to_be_no_part_of_their_time(
    get: Callable[[str], str],
) -> None:
    page = words(get("/clusters/Scheduler-1/computations/erred"))
    assert "communicating" in page
    assert "Workers fetch data beside their threads, from several others at once" in page


def test_a_page_without_measurements_spans_and_logs_says_so(get: Callable[[str], str]) -> None:
    page = get("/clusters/Scheduler-2/computations/blind")
    assert "no measurements arrived from its start and its end" in page
    assert "memory arrived while it ran" in page
    assert "no span of this computation arrived" in page
    # Not all records of its time were looked at.
    assert "None of the newest records of this time belongs to this computation" in page
    assert "of another" not in page
    assert "No profile of this time was reported" in page
    # Its groups are known from heartbeats.
    assert 'class="fall plain"' in page
    brief = get("/clusters/Scheduler-1/computations/brief")
    assert "too short for them" in brief
    assert "No log record of this computation arrived" in brief


def test_code_shows_with_its_calling_line_and_nothing_in_it_is_markup(
    get: Callable[[str], str],
) -> None:
    page = words(get("/clusters/Scheduler-1/computations/erred"))
    assert '<span class="tok-keyword">return</span>' in page
    assert '<span class="tok-string">&#39;x&lt;y&#39;</span>' in page
    (calling,) = re.findall(r'<li class="calling">.*?</li>', page)
    assert "x&lt;y" in calling
    assert "style=" not in page


def test_a_computations_own_records_are_on_its_page_and_behind_its_link(
    get: Callable[[str], str],
) -> None:
    page = get("/clusters/Scheduler-1/computations/erred")
    assert re.findall(r"record \d of \w+", page) == ["record 0 of erred", "record 1 of erred"]
    link = re.search(r'href="(/logs\?computation=erred[^"]*)"', page)
    assert link is not None
    listed = get(link[1].replace("&amp;", "&"))
    [title] = re.findall(r"<h1[^>]*>[^/]*</span>\s*<code>(.*?)</code>", page)
    [chosen] = re.findall(r'value="erred" checked>\s*<span>Only of (.*?)</span>', listed)
    assert re.search(r'name="since" value="\d{4}-\d\d-\d\dT\d\d:\d\d', listed)
    assert chosen == title
    assert 'value="erred" checked' not in get("/logs")
    assert sorted(set(re.findall(r"record \d of \w+", listed))) == [
        "record 0 of erred",
        "record 1 of erred",
    ]


def test_results_that_were_lost_are_not_done_but_runs_that_are_told(
    get: Callable[[str], str], shared_service: ServiceProcess
) -> None:
    token = shared_service.token(scopes=["ingest", "read"], workspace=WORKSPACE)
    states = {"memory": 30, "released": 10, "waiting": 20, "processing": 2}
    counts: dict[str, Any] = {"tasks": 62, "completed": 60, "erred": 0, "states": states}
    beat = make_beat(
        make_cluster("Scheduler-3"),
        computations=(make_computation("again", **counts),),
        task_groups=(make_task_group("again", "sum-1", **counts),),
    )
    assert post(shared_service.url, token, beat).ok
    where = "/clusters/Scheduler-3/computations"
    page = " ".join(re.sub("<[^>]*>", " ", get(f"{where}/again")).split())
    assert "40 of 62 tasks done (65%)" in page
    assert "Tasks done 40 of 62 60 runs, 20 results gone Erred" in page
    assert "40 / 62 60 runs" in page
    listed = " ".join(re.sub("<[^>]*>", " ", get(where)).split())
    assert "40 / 62" in listed
    (row,) = csv.DictReader(get("/computations.csv?cluster=Scheduler-3").splitlines())
    assert (row["tasks_done"], row["tasks"], row["task_runs_completed"]) == ("40", "62", "60")
    told = requests.get(
        f"{shared_service.url}/api/v1{where}/again",
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    ).json()
    for counted in (told, *told["task_groups"]):
        assert (counted["done"], counted["completed"], counted["tasks"]) == (40, 60, 62)


def test_the_table_of_very_many_groups_has_pages_and_an_order(get: Callable[[str], str]) -> None:
    where = "/clusters/Scheduler-2/computations/wide"
    rows = re.compile(r'<tr id="group-([^"]+)"')
    first = rows.findall(get(where))
    assert len(first) == MOST_GROUPS
    assert f"of {2 * MOST_GROUPS + 7}" in get(where)
    second = rows.findall(get(f"{where}?from={MOST_GROUPS}"))
    assert set(first).isdisjoint(second)
    by_time = rows.findall(get(f"{where}?sort=time"))
    assert {"read-parquet-wide1c9b", f"w{2 * MOST_GROUPS - 1:03}"} <= set(by_time)
    assert "w000" not in by_time
