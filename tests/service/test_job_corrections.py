"""People merge, split and name jobs; the runs follow, and go back when that is undone."""

from __future__ import annotations

import html
import time
from typing import Any

import dask
import pytest
import requests
from click.testing import CliRunner
from sqlalchemy import Engine, func, insert, select

import daskscope
from daskscope.errors import AccessDenied, NotFound
from daskscope_service.accounts import audit
from daskscope_service.accounts.change import Change
from daskscope_service.cli.main import cli
from daskscope_service.db import schema
from daskscope_service.db.engine import open_database, upgrade_database, writing
from daskscope_service.jobs import reassignment
from daskscope_service.jobs.corrections import undo
from daskscope_service.jobs.namer import WORK, Namer
from daskscope_service.jobs.reassignment import unassign
from daskscope_service.periodic import Lease
from daskscope_service.queries.job_runs import ALL_RUNS, assign_runs_anew
from daskscope_service.settings import Settings
from tests.patience import wait_until
from tests.postgresql import PostgresServer
from tests.service.beats import make_code
from tests.service.job_history import EDITED, Place
from tests.service.pages import words
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

#: Another file that does the same.
MOVED = make_code("import dask\n\nresult = load('a').sum().compute()\n", "/home/ada/moved.py")


class Corrected(Place):
    """A workspace with jobs, and a member who corrects them."""

    def __init__(self, service: ServiceProcess, role: Any = "member") -> None:
        super().__init__(service)
        self.user = make_user(service, {self.workspace: role}).name
        self.member = browser_of(service, self.user)
        self.admin = service.token(scopes=["admin", "read"], workspace=self.workspace)

    def correct(self, job: str, **wish: str) -> requests.Response:
        url = f"{self.service.url}/api/v1/job-corrections"
        return self.member.post(url, json={"job": job} | wish, timeout=30)

    def corrected(self, job: str, **wish: str) -> str:
        answer = self.correct(job, **wish)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def undo(self, id: str) -> int:
        url = f"{self.service.url}/api/v1/job-corrections/{id}"
        return self.member.delete(url, timeout=30).status_code

    def settled(self, runs: int) -> list[Any]:
        """Return the jobs once each of so many runs has its job, and each job its sums."""
        run, job = schema.computation, schema.job
        waiting = (
            select(func.count())
            .select_from(run)
            .where(run.c.workspace == self.workspace, run.c.job_due_at.is_not(None))
        )
        marked = select(func.count()).where(
            job.c.workspace == self.workspace, job.c.assign_before.is_not(None)
        )
        namer = Namer(self.service.engine, 60.0)
        jobs: list[Any] = []

        def is_settled() -> bool:
            namer.round()
            with self.service.engine.connect() as connection:
                if connection.execute(waiting).scalar() or connection.execute(marked).scalar():
                    return False
            if not self.summed():
                return False
            jobs[:] = self.answer("jobs")["items"]
            return bool(sum(one["runs"] for one in jobs) == runs)

        assert wait_until(is_settled), jobs
        return jobs


@pytest.fixture
def place(shared_service: ServiceProcess) -> Corrected:
    return Corrected(shared_service)


def two_jobs(place: Corrected) -> tuple[str, str]:
    """Send three runs of one file, then two of the file that it was moved to."""
    for day in (9, 8, 7):
        place.run(10, day)
    frames = {"code": MOVED}
    for day in (2, 1):
        place.run(20, day, **frames, frames=frame_of(MOVED))
    first, second = sorted(place.jobs(runs=5), key=lambda one: -one["runs"])
    assert (first["runs"], second["runs"]) == (3, 2)
    return first["id"], second["id"]


def frame_of(code: Any) -> Any:
    from daskscope.protocol import CodeFrame
    from tests.service.job_history import LINE

    return (CodeFrame(code.file, LINE, code.hash),)


def test_merged_runs_are_one_job_those_that_come_too_and_undo_takes_them_back(
    place: Corrected,
) -> None:
    old, new = two_jobs(place)
    sentence = place.answer(f"jobs/{old}/correction-preview", merge_into=new)["sentence"]
    assert "All 3 runs of “result = load('a').sum().compute()”" in sentence
    assert "which has 2 runs" in sentence
    id = place.corrected(old, merge_into=new)
    [job] = place.settled(5)
    assert (job["id"], job["runs"]) == (new, 5)
    place.run(11, 0.5)
    [job] = place.settled(6)
    assert job["runs"] == 6
    # The old address, and budgets in CI, lead to the job that it is now.
    assert place.answer(f"jobs/{old}")["id"] == new
    assert place.answer(f"runs/{old}")["job"] == new
    page = place.session.get(f"{place.service.url}/jobs/{old}", timeout=30)
    assert page.url.endswith(f"/jobs/{new}")
    assert f"{place.user} merged" in words(page.text)
    [kept] = place.answer(f"jobs/{new}")["corrections"]
    assert (kept["id"], kept["kind"], kept["value"], kept["by"]) == (id, "merge", new, place.user)
    assert place.undo(id) == 204
    assert sorted(one["runs"] for one in place.settled(6)) == [2, 4]
    assert {one["id"] for one in place.settled(6)} == {old, new}
    assert place.answer(f"jobs/{old}")["corrections"] == []
    entries = [
        (one.action, one.detail, one.actor)
        for one in audit.newest(place.service.engine, 500)
        if one.workspace == place.workspace and one.action.startswith("job")
    ]
    detail = f"job {old} merged into job {new}"
    assert entries == [
        ("job correction undone", detail, place.user),
        ("job corrected", detail, place.user),
    ]


def test_a_job_under_one_name_is_split_by_code_and_by_shape_and_put_together_again(
    place: Corrected,
) -> None:
    for day in (9, 8, 7):
        place.run(10, day, spans=("nightly",))
    place.run(20, 2, spans=("nightly",), code=MOVED, frames=frame_of(MOVED))
    place.run(20, 1, spans=("nightly",), group_fields={"prefix": "max"})
    [job] = place.jobs(runs=5)
    sentence = place.answer(f"jobs/{job['id']}/correction-preview", split_by="code")["sentence"]
    assert "Its newest 5 runs become 2 jobs, of 4 and 1 runs" in sentence
    by_code = place.corrected(job["id"], split_by="code")
    parts = sorted(place.settled(5), key=lambda one: -one["runs"])
    assert [one["runs"] for one in parts] == [4, 1]
    assert all(one["id"].startswith(job["id"] + "-") for one in parts)
    by_shape = place.corrected(parts[0]["id"], split_by="shape")
    assert sorted(one["runs"] for one in place.settled(5)) == [1, 1, 3]
    place.run(10, 0.5, spans=("nightly",))
    assert sorted(one["runs"] for one in place.settled(6)) == [1, 1, 4]
    largest = max(place.settled(6), key=lambda one: one["runs"])
    kept = place.answer(f"jobs/{largest['id']}")["corrections"]
    assert [one["id"] for one in kept] == [by_shape, by_code]
    # A part that was merged elsewhere comes back, too, and its own corrections end.
    smallest = next(one for one in place.settled(6) if one["runs"] == 1)
    place.corrected(smallest["id"], merge_into=largest["id"])
    assert sorted(one["runs"] for one in place.settled(6)) == [1, 5]
    assert place.undo(by_code) == 204
    [whole] = place.settled(6)
    assert (whole["id"], whole["runs"]) == (job["id"], 6)
    assert place.answer("job-corrections")["items"] == []


def test_a_part_of_a_split_job_shows_the_merges_from_before(place: Corrected) -> None:
    old, new = two_jobs(place)
    merged = place.corrected(old, merge_into=new)
    place.settled(5)
    split = place.corrected(new, split_by="code")
    for part in place.settled(5):
        corrections = place.answer(f"jobs/{part['id']}")["corrections"]
        assert [one["id"] for one in corrections] == [split, merged]


def test_jobs_of_one_title_are_told_apart_by_their_ids(place: Corrected) -> None:
    old, new = two_jobs(place)
    place.corrected(new, name="the copy")
    page = place.member.get(f"{place.service.url}/jobs/{old}/correct", timeout=30).text
    choice = f"the copy: result = load('a').sum().compute() (2 runs, ada, {new})"
    assert choice in words(html.unescape(page))
    same = "“result = load('a').sum().compute()”"
    place.undo(place.answer("job-corrections")["items"][0]["id"])
    sentence = place.answer(f"jobs/{old}/correction-preview", merge_into=new)["sentence"]
    assert f"All 3 runs of {same} ({old}), and all that come" in sentence
    assert f"become runs of {same} ({new}), which" in sentence


def test_a_name_is_shown_in_place_of_the_title_and_kept_with_who_gave_it(place: Corrected) -> None:
    old, _ = two_jobs(place)
    place.corrected(old, name="the first")
    id = place.corrected(old, name="the nightly load")
    found = place.answer(f"jobs/{old}")
    assert (found["title"], found["given_name"]) == ("the nightly load", "the nightly load")
    [kept] = found["corrections"]
    assert (kept["id"], kept["by"]) == (id, place.user)
    assert "the nightly load" in place.page("/jobs")
    assert f"{place.user} named" in place.page("/jobs/corrections")
    assert place.undo(id) == 204
    assert place.answer(f"jobs/{old}")["title"] == "result = load('a').sum().compute()"


def test_a_run_that_never_ended_comes_back_when_a_split_by_shape_is_undone(
    place: Corrected,
) -> None:
    for day in (9, 8):
        place.run(10, day)
    place.run(10, 3, status="running", stopped_at=None)
    [job] = place.jobs(runs=3)
    id = place.corrected(job["id"], split_by="shape")
    assert [one["runs"] for one in place.settled(2)] == [2]
    assert place.undo(id) == 204
    [whole] = place.settled(3)
    assert (whole["id"], whole["runs"]) == (job["id"], 3)


def test_a_correction_that_is_made_while_runs_get_their_jobs_counts(
    place: Corrected, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = two_jobs(place)
    namer, run = Namer(place.service.engine, 60.0), schema.computation
    ours = select(run.c.cluster, run.c.id).where(run.c.workspace == place.workspace)
    with place.service.engine.connect() as connection:
        keys = [(row[0], row[1]) for row in connection.execute(ours.where(run.c.job == old))]
    rows = [row | {"job": None} for row in namer._rows(place.workspace, keys, time.time())]
    write = namer._repeats.write

    def correct_meanwhile(*arguments: Any) -> None:
        place.corrected(old, merge_into=new)
        place.settled(5)
        write(*arguments)

    monkeypatch.setattr(namer._repeats, "write", correct_meanwhile)
    namer._name(place.workspace, rows, time.time())
    with place.service.engine.connect() as connection:
        assert list(connection.execute(ours.where(run.c.job == old))) == []
    assert [one["id"] for one in place.settled(5)] == [new]


def test_many_runs_go_part_by_part(place: Corrected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignment, "_TOGETHER", 2)
    old, new = two_jobs(place)
    engine, lease, run = place.service.engine, Lease(place.service.engine, WORK), schema.computation
    of_old = select(func.count()).where(run.c.workspace == place.workspace, run.c.job == old)
    assigned = "Runs are being assigned to the jobs that corrections give them."
    assert assigned not in place.page(f"/jobs/{new}")
    assert wait_until(lease.take)  # so that the service itself does nothing meanwhile
    try:
        id = place.corrected(old, merge_into=new)
        left = []
        while unassign(engine, place.workspace, time.time()):
            with engine.connect() as connection:
                left.append(connection.execute(of_old).scalar())
            assert assigned in place.page(f"/jobs/{new}")
        assert left == [1, 0]
        assert assigned in place.page("/jobs/corrections")
    finally:
        lease.give_back(done=False)
    assert [one["runs"] for one in place.settled(5)] == [5]
    assert assigned not in place.page("/jobs/corrections")
    place.undo(id)
    assert sorted(one["runs"] for one in place.settled(5)) == [2, 3]


@pytest.mark.sqlite
def test_what_makes_no_sense_is_refused_with_the_reason(place: Corrected) -> None:
    old, new = two_jobs(place)
    for wish, status, why in (
        ({}, 400, "one of these"),
        ({"merge_into": new, "name": "x"}, 400, "one of these"),
        ({"merge_into": old}, 400, "into itself"),
        ({"merge_into": "0" * 16}, 404, "no job"),
        ({"split_by": "colour"}, 400, "split_by"),
        ({"split_by": "code"}, 400, "the same code and user already"),
        ({"name": "a\u202eb"}, 400, "name"),
        ({"name": "x" * 81}, 400, "name"),
        ({"names": "x"}, 400, "names"),
    ):
        answer = place.correct(old, **wish)
        assert (answer.status_code, why in answer.text) == (status, True), (wish, answer.text)
    assert place.correct("0" * 16, name="x").status_code == 404
    assert place.undo("0" * 16) == 404
    place.corrected(old, merge_into=new)
    again = place.correct(old, split_by="shape")
    assert again.status_code == 400
    assert f"already merged into job {new}" in again.text
    circle = place.correct(new, merge_into=old)
    assert circle.status_code == 400
    assert "undo that first" in circle.text
    form = place.member.post(
        f"{place.service.url}/jobs/{new}/correct", data={"merge_into": old}, timeout=30
    )
    assert form.status_code == 400
    assert "undo that first" in words(form.text)


def test_nobody_corrects_jobs_of_another_workspace_or_as_a_viewer(place: Corrected) -> None:
    old, new = two_jobs(place)
    other = Corrected(place.service)
    other.run(5, 1, code=EDITED)
    [theirs] = other.jobs(runs=1)
    assert theirs["id"] == old  # equal code has equal ids
    assert other.correct(new, name="x").status_code == 404
    assert other.correct(old, merge_into=new).status_code == 404
    assert other.ask(f"jobs/{new}/correction-preview", name="x").status_code == 404
    id = place.corrected(old, merge_into=new)
    place.settled(5)
    assert place.correct(new, name="ours").status_code == 201
    assert other.undo(id) == 404
    assert other.answer("job-corrections")["items"] == []
    page = other.member.get(f"{place.service.url}/jobs/corrections/{id}/undo", timeout=30)
    assert page.status_code == 404
    # Their job of the same code keeps its runs.
    other.run(5, 2)
    [theirs] = other.settled(2)
    assert (theirs["id"], theirs["given_name"]) == (old, None)
    viewer = browser_of(place.service, make_user(place.service, {place.workspace: "viewer"}).name)
    url = f"{place.service.url}/api/v1/job-corrections"
    assert viewer.post(url, json={"job": new, "name": "x"}, timeout=30).status_code == 403
    assert viewer.delete(f"{url}/{id}", timeout=30).status_code == 403
    assert (
        "Merge, split or name" not in viewer.get(f"{place.service.url}/jobs/{new}", timeout=30).text
    )


@pytest.mark.sqlite
def test_python_and_the_command_line_correct_jobs(place: Corrected) -> None:
    old, new = two_jobs(place)
    endpoint = {"daskscope.endpoint": place.service.url}
    with dask.config.set(endpoint | {"daskscope.token": place.admin}):
        made = daskscope.merge_job(old, new)
        assert (made["kind"], made["value"]) == ("merge", new)
        assert made["at"].tzinfo is not None
        place.settled(5)
        assert [one["id"] for one in daskscope.list_job_corrections()] == [made["id"]]
        [kept] = daskscope.get_job(new)["corrections"]
        assert kept["at"] == made["at"]
        daskscope.undo_job_correction(made["id"])
        place.settled(5)
        with pytest.raises(NotFound):
            daskscope.name_job("0" * 16, "x")

        def run(*words: str, **more: Any) -> Any:
            return CliRunner().invoke(cli, ["job", *words], catch_exceptions=False, **more)

        shown = run("merge", old, new, input="n\n")
        assert shown.exit_code == 1
        assert "All 3 runs of" in shown.output
        assert daskscope.list_job_corrections() == []
        done = run("split", old, "--by", "shape", "--yes")
        assert done.exit_code == 0, done.output
        id = done.output.split()[-1]
        assert id in run("corrections").output
        [part, _] = sorted((one["id"] for one in place.settled(5)), key=len, reverse=True)
        listing = ["list", "jobs", "--since", "all"]
        listed = CliRunner().invoke(cli, listing, catch_exceptions=False)
        assert f" {part} " in listed.output  # whole: to be copied
        place.corrected(part, name="the newest")
        kept = run("undo", id, input="n\n")
        assert kept.exit_code == 1
        assert f"split job {old} by shape. The corrections of the jobs that" in kept.output
        assert len(daskscope.list_job_corrections()) == 2
        gone = run("undo", id, "--yes")
        assert gone.exit_code == 0
        assert "2 corrections ended" in gone.output
        assert run("corrections").output == "There are none.\n"
        place.settled(5)  # until then there is no job of this id
        wrong = run("split", old, "--by", "code", "--yes")
        assert wrong.exit_code == 1
        assert "the same code and user already" in wrong.output
    with (
        dask.config.set(endpoint | {"daskscope.token": place.token}),
        pytest.raises(AccessDenied),
    ):
        daskscope.split_job(old, "shape")


def test_a_split_into_very_many_jobs_can_be_undone(engine: Engine) -> None:
    # More than the parameters that either database takes.
    ids = [f"0f3c9ab17c55d0e2-{number:012x}" for number in range(70_000)]
    with writing(engine) as connection:
        row = {"workspace": "w", "level": "name", "name": "n", "runs": 1}
        row |= {"first_at": 1.0, "last_at": 1.0, "last_cluster": "s", "last_computation": "c"}
        connection.execute(insert(schema.job), [row | {"id": id} for id in (ids[0], ids[-1])])
        assign_runs_anew(connection, "w", ids)
        marked = select(schema.job.c.id).where(schema.job.c.assign_before == ALL_RUNS)
        assert set(connection.execute(marked).scalars()) == {ids[0], ids[-1]}


def test_undo_finds_the_parts_of_a_split_whatever_the_locale_of_the_database(
    postgresql: PostgresServer,
) -> None:
    # Most locales sort punctuation before digits, and letters beside capital ones.
    name = postgresql.create(options="LOCALE_PROVIDER icu ICU_LOCALE 'en'")
    settings = Settings(database_url=postgresql.url(name))
    upgrade_database(settings)
    engine = open_database(settings)
    workspace, whole = "w", "0f3c9ab17c55d0e2"
    ids = (whole, f"{whole}-0a1b2c3d4e5f", f"{whole}-f0-9c", f"{whole}1", "77ab01c5c55d4e2a")
    with writing(engine) as connection:
        for id in ids:
            of_run = {"first_at": 1.0, "last_at": 1.0, "last_cluster": "s", "last_computation": "c"}
            row = {"workspace": workspace, "id": id, "level": "name", "name": "n", "runs": 1}
            connection.execute(insert(schema.job).values(row | of_run))
        split = {"id": "c", "job": whole, "kind": "split", "value": "code"}
        row = {"workspace": workspace, "changed_at": 1.0, "changed_by": "ada"}
        connection.execute(insert(schema.job_correction).values(row | split))
        undo(Change(connection, workspace, "ada"), "c")
        marked = select(schema.job.c.id).where(schema.job.c.assign_before.is_not(None))
        assert set(connection.execute(marked).scalars()) == set(ids[:3])
    engine.dispose()
