"""Two runs compared, of what their clusters sent: page, API, Python and command line."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

import dask
import pytest
from click.testing import CliRunner
from sqlalchemy import delete, update

import daskscope
from daskscope.errors import NotFound
from daskscope.protocol import CodeFrame
from daskscope_service.cli.main import cli
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.insight.jobs.comparison import as_markdown
from tests.service.beats import (
    ENVIRONMENT,
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_profile,
    make_status,
    make_task_group,
    post,
)
from tests.service.job_history import CODE, LINE, Place
from tests.service.pages import words
from tests.service_process import ServiceProcess

EDITED = make_code("import dask\n\nresult = load('a').sum().compute()\nx = '```'\n", CODE.file)
NEWER = replace(ENVIRONMENT, packages={"dask": "2026.9.0", "pandas": "3.1.0"})


class Pair(Place):
    """A usual run of 40 load tasks of 2 s on 8 threads, and others to compare it with."""

    def send(
        self, id: str, seconds: float, *, each: float = 2.0, tasks: int = 40, **fields: Any
    ) -> str:
        id = f"{id}-{self.workspace}"
        now = time.time()
        began = now - 1000
        busy = tasks * each
        threads = fields.pop("threads", 8)
        idle = threads * seconds - busy
        code, environment = fields.pop("code", CODE), fields.pop("environment", ENVIRONMENT)
        profiles = tuple(
            make_profile(f"p{n}-{id}", started_at=began + n / 10, stopped_at=began + n / 10 + 0.1)
            for n in range(fields.pop("profiles", 0))
        )
        values: dict[str, Any] = {
            "status": "finished",
            "started_at": began,
            "began_at": began,
            "stopped_at": began + seconds,
            "tasks": tasks,
            "completed": tasks,
            "erred": 0,
            "states": {"memory": tasks},
            "seconds": {"compute": busy},
            "worker_seconds": {"busy": busy, "idle": idle, "paused": 0.0},
            "workers": threads // 2,
            "frames": (CodeFrame(CODE.file, LINE, code.hash),),
        }
        group = make_task_group(
            id,
            "load-1",
            prefix="load",
            tasks=tasks,
            completed=tasks,
            erred=0,
            retried=fields.get("retried", 0),
            seconds={"compute": busy},
            output_bytes=tasks * 1000,
            dependencies=(),
        )
        beat = make_beat(
            make_cluster(f"Scheduler-{id}", started_at=began - 5, environment=environment),
            status=make_status(at=began + seconds + 5),
            computations=(make_computation(id, **(values | fields)),),
            task_groups=(group,),
            code=(code,),
            profiles=profiles,
        )
        assert post(self.service.url, self.token, beat).ok
        return id

    def compare(self, a: str, b: str) -> Any:
        found = self.answer("comparisons", a=a, b=b)
        total = sum(part["seconds"] for part in found["parts"])
        assert total == pytest.approx(found["seconds"], abs=1e-6)
        assert found["seconds"] == pytest.approx(found["b"]["duration"] - found["a"]["duration"])
        return found


@pytest.fixture
def pair(shared_service: ServiceProcess) -> Pair:
    return Pair(shared_service)


def test_slower_tasks_are_named_and_versions_and_code_are_candidates(pair: Pair) -> None:
    a = pair.send("a", 10.0)
    b = pair.send("b", 20.0, each=4.0, environment=NEWER, code=EDITED)
    found = pair.compare(a, b)
    assert found["sentence"] == (
        "The second run took 2.0 times as long as the first: 20.0 s instead of 10.0 s. Of the "
        "10.0 s more, 10.0 s are in what each task of load takes (2.0 s → 4.0 s). At the same time "
        "differ: dask 2026.8.0 → 2026.9.0; distributed 2026.8.0 (not there any more); pandas 3.1.0 "
        "(not there before); code of run.py."
    )
    assert [(part["kind"], part["prefix"]) for part in found["parts"]] == [("each", "load")]
    [code] = found["code"]
    assert "+x = '```'" in code["diff"].splitlines()
    [group] = found["groups"]
    assert (group["runs"], group["mean"]) == ([40, 40], [2.0, 4.0])
    assert "because" not in pair.page(f"/comparisons?a={a}&b={b}").lower()
    page = pair.page(f"/comparisons?a={a}&b={b}")
    assert "what each load task takes" in page
    assert "+10.0 s" in page
    back = pair.compare(b, a)
    assert back["sentence"].startswith("The second run took 50\N{NO-BREAK SPACE}% less than")


def test_the_mean_is_of_all_runs_where_some_were_repeated(pair: Pair) -> None:
    found = pair.compare(pair.send("a", 10.0), pair.send("b", 12.0, retried=40))
    [group] = found["groups"]
    assert (group["runs"], group["mean"]) == ([40, 80], [2.0, 1.0])


def test_tasks_that_failed_and_ran_again_are_not_slower_tasks(pair: Pair) -> None:
    found = pair.compare(pair.send("a", 10.0), pair.send("b", 20.0, each=4.0, retried=40))
    assert "10.0 s are from tasks of load that ran again (0 → 40)" in found["sentence"]
    assert [(part["kind"], part["words"]) for part in found["parts"]] == [
        ("repeated", "load tasks that ran again")
    ]
    [group] = found["groups"]
    assert (group["runs"], group["mean"]) == ([40, 80], [2.0, 2.0])


def test_a_flame_graph_is_of_all_profiles_or_there_is_none_and_why(pair: Pair) -> None:
    drawn, note = "Flame graph of the difference", "more profiles than a page can merge"
    for known, status in ((60, True), (61, False)):
        a, b = pair.send(f"a{known}", 10.0, profiles=5), pair.send(f"b{known}", 9.0, profiles=known)
        html = pair.session.get(f"{pair.service.url}/comparisons?a={a}&b={b}", timeout=30).text
        assert (drawn in html, note in html) == (status, not status)
        # 21.5 seconds of threads are in each profile.
        assert ("→ about 21" in words(html)) is status
    assert "The second run has more profiles" in words(html)
    assert 'href="/profile?cluster=Scheduler-b61' in html
    with writing(pair.service.engine) as connection:
        of_it = schema.profile.c.cluster == f"Scheduler-{b}"
        connection.execute(delete(schema.profile).where(of_it, schema.profile.c.id != f"p0-{b}"))
        connection.execute(update(schema.profile).where(of_it).values(parent=[5]))
    page = pair.page(f"/comparisons?a={a}&b={b}")
    assert "1 profile of the second run cannot be shown" in page


def test_it_leads_to_the_job_of_the_second_run_by_its_title(pair: Pair) -> None:
    a, b = (pair.send(id, 10.0, spans=("nightly",)) for id in "ab")
    [job] = pair.jobs(runs=2)
    link = f'<a href="/jobs/{job["id"]}">nightly</a>'
    assert link in pair.page(f"/comparisons?a={a}&b={b}")
    [head, row] = pair.session.get(f"{pair.service.url}/jobs.csv", timeout=30).text.splitlines()
    cells = dict(zip(head.split(","), row.split(","), strict=True))
    assert cells["call"] == "result = load('a').sum().compute()"
    assert cells["given_name"] == ""


def test_few_runs_do_not_say_what_runs_of_their_job_vary_by(pair: Pair) -> None:
    a, b = pair.send("a", 10.0), pair.send("b", 20.0, each=4.0)
    [job] = pair.jobs(runs=2)
    found = pair.compare(a, b)
    assert found["same_job"]
    assert job["runs"] == 2
    assert found["sentence"].startswith("The second run took 2.0 times as long as the first")


def test_more_tasks_and_fewer_threads_are_parts_of_their_own(pair: Pair) -> None:
    a = pair.send("a", 10.0)
    more = pair.compare(a, pair.send("more", 20.0, tasks=80))
    assert [part["kind"] for part in more["parts"]] == ["tasks"]
    assert "from the number of tasks of load (40 → 80)" in more["sentence"]
    assert [one["kind"] for one in more["candidates"]] == ["data"]
    fewer = pair.compare(a, pair.send("fewer", 20.0, threads=4))
    assert [part["kind"] for part in fewer["parts"]] == ["threads"]
    assert "from the number of threads (8 → 4)" in fewer["sentence"]
    assert "workers 4 → 2" in [one["words"] for one in fewer["candidates"]]


def test_a_host_that_had_more_to_do_than_cores_is_a_candidate(pair: Pair) -> None:
    a = pair.send("a", 10.0, host_load=0.9)
    slowed = pair.compare(a, pair.send("slowed", 20.0, each=4.0, host_load=2.6))
    assert [one["kind"] for one in slowed["candidates"]] == ["load"]
    assert "highest load of a worker's host for each core 0.9 → 2.6" in slowed["sentence"]
    for id, load in (("a-core-each", 1.0), ("hardly-more", 1.3), ("not-known", None)):
        assert pair.compare(a, pair.send(id, 20.0, each=4.0, host_load=load))["candidates"] == []


def test_equal_runs_say_that_they_are_and_failed_ones_that_they_failed(pair: Pair) -> None:
    a = pair.send("a", 10.0)
    same = pair.compare(a, pair.send("same", 10.4, each=2.08))
    assert not same["differs"]
    assert same["sentence"].startswith("The second run took about as long as the first")
    assert same["candidates"] == []
    failed = pair.compare(a, pair.send("failed", 30.0, status="erred", erred=1))
    assert failed["sentence"].startswith("The second run failed, so the durations are not")
    itself = pair.compare(a, a)
    assert (itself["parts"], itself["seconds"]) == ([], 0.0)


def test_what_is_no_run_of_the_workspace_is_not_found(
    pair: Pair, shared_service: ServiceProcess
) -> None:
    a = pair.send("a", 10.0)
    stranger = Pair(shared_service)
    for one, other in ((a, "nothing"), ("nothing", a)):
        assert pair.ask("comparisons", a=one, b=other).status_code == 404
    own = stranger.send("own", 10.0)
    assert stranger.ask("comparisons", a=own, b=a).status_code == 404
    url = f"{stranger.service.url}/comparisons?a={own}&b={a}"
    assert stranger.session.get(url, timeout=30).status_code == 404
    assert pair.ask("comparisons", a=a).status_code == 400


def test_markdown_shows_names_and_code_as_text_alone() -> None:
    marks = "<img src=x> ![i](http://x) *b* __c__ www.x.example"
    name = f"\x1b[31m@everyone\x1b]8;;x\x07 \u202e#12 {marks}"
    plain = f"[31m@everyone ]8;;x #12 {marks}"
    words = f"settings {name}\n\n# head | `y` \\"
    text = as_markdown(
        {
            "sentence": f"At the same time differ: {words}.",
            "seconds": 1.0,
            "parts": [{"words": words, "change": name, "seconds": 1.0}],
            "candidates": [{"words": words}],
            "code": [{"diff": "--- a\n+\tx = '\x1b[2J\x9b\u202e'\r\n+```` \x85<b>"}],
            "url": "https://d.example/comparisons?a=1&b=2",
        }
    )
    assert all(one.isprintable() or one in "\n\t" for one in text)
    prose, _, code = text.partition("`````diff\n")
    assert code == "--- a\n+\tx = ' [2J  ' \n+````  <b>\n`````\n\n" + (
        "https://d.example/comparisons?a=1&b=2"
    )
    lines = prose.splitlines()
    assert len(lines) == 11
    # GitHub looks for mentions and issues after Markdown; and it links what looks like an address.
    assert not re.search(r"(?<!&)[@#]\w|\w://|www\.", prose)
    for line in lines[0], lines[4], lines[9]:
        read = re.sub(r"\\([\W_])", r"\1", line.replace("&#8203;", ""))
        assert f"settings {plain} # head | `y` \\" in read
        # Each character of Markdown has a backslash.
        assert not re.search(r"[*_\[\]<>!#@`~]", re.sub(r"\\[\W_]|&#8203;", "", line))


def test_python_and_the_command_line_compare(pair: Pair) -> None:
    a, b = pair.send("a", 10.0), pair.send("b", 20.0, each=4.0, code=EDITED)
    place = {"daskscope.endpoint": pair.service.url, "daskscope.token": pair.token}
    with dask.config.set(place):
        found = daskscope.compare(a, b)
        assert found["b"]["started_at"].tzinfo is not None
        with pytest.raises(NotFound):
            daskscope.compare(a, "nothing")

        def say(*options: str) -> str:
            return (
                CliRunner().invoke(cli, ["compare", a, b, *options], catch_exceptions=False).output
            )

        assert "+10.00 s  what each load task takes" in say()
        assert json.loads(say("--json"))["sentence"] == found["sentence"]
        markdown = say("--markdown")
    assert "| what each load task takes | 2.0 s → 4.0 s | +10.00 |" in markdown
    # What is in the code ends no block.
    assert "````diff" in markdown
