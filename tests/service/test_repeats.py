"""Work that ran more than once on the same inputs: what counts, and what it comes to."""

from __future__ import annotations

import time
from typing import Any

import dask
import pytest
from click.testing import CliRunner
from sqlalchemy import Table

import daskscope
from daskscope_service.cli.main import cli
from daskscope_service.db import schema
from daskscope_service.db.data_ownership import Whose
from daskscope_service.jobs.namer import Namer
from daskscope_service.retention import deletion
from daskscope_service.retention.removal import remove_keys
from daskscope_service.retention.throttle import Throttle
from tests.patience import wait_until
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_computation,
    make_status,
    make_task_group,
    post,
)
from tests.service.job_history import DOLLARS, NOW, Place
from tests.service_process import ServiceProcess

READ, CLEAN, SUM = ("read-parquet-0a0a0a0a", "getitem-0b0b0b0b", "sum-0c0c0c0c")


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    return Place(shared_service)


def run(
    place: Place,
    *names: str,
    day: float = 1.0,
    cluster: str | None = None,
    user: str = "ada",
    each: float = 10.0,
    **fields: Any,
) -> str:
    """Send a run of groups of these names, each of which took so many thread-seconds."""
    place.sent += 1
    id, began = f"run-{place.sent}", NOW - day * 86_400
    took = each * len(names)
    group: dict[str, Any] = {
        "completed": 100,
        "erred": 0,
        "states": {"memory": 100},
        "seconds": {"compute": each - 1, "transfer": 1.0},
        "dependencies": (),
        "tokenized": True,
    }
    beat = make_beat(
        make_cluster(
            f"Scheduler-{place.workspace}-{cluster or place.sent}",
            started_at=NOW - 40 * 86_400,
            prices=DOLLARS,
        ),
        status=make_status(
            at=began + 30,
            worker_seconds={"busy": took, "idle": took, "paused": 0.0},
            cost=2 * took,
        ),
        computations=(
            make_computation(
                id,
                user=user,
                status="finished",
                started_at=began,
                stopped_at=began + 20,
                completed=100 * len(names),
                erred=0,
                worker_seconds={"busy": took, "idle": took},
            ),
        ),
        task_groups=tuple(
            make_task_group(
                id,
                name,
                prefix=name.rpartition("-")[0],
                started_at=began + 1 + step,
                **(group | fields),
            )
            for step, name in enumerate(names)
        ),
    )
    assert post(place.service.url, place.token, beat).ok
    return id


def repeats(place: Place, **parameters: str) -> list[Any]:
    """Return the repeats once the groups of all runs are noted."""
    namer = Namer(place.service.engine, 60.0)

    def noted() -> bool:
        namer.round()
        query = (
            schema.computation.select()
            .where(schema.computation.c.workspace == place.workspace)
            .where(schema.computation.c.job_due_at <= time.time())
        )
        with place.service.engine.connect() as connection:
            return connection.execute(query).first() is None

    assert wait_until(noted)
    found: list[Any] = place.answer("repeats", **parameters)["items"]
    return found


def test_groups_of_the_same_runs_are_one_work_with_users_time_and_cost(place: Place) -> None:
    run(place, READ, CLEAN, SUM, day=3)
    run(place, READ, CLEAN, SUM, day=2, user="li")
    run(place, READ, CLEAN, "mean-0d0d0d0d", day=1, each=12)
    whole, part = sorted(repeats(place), key=lambda work: -work["runs"])
    assert whole["steps"] == ["read-parquet", "getitem"]
    assert (whole["runs"], whole["clusters"], sorted(whole["users"])) == (3, 3, ["ada", "li"])
    # Two groups, 10 s in the second run and 12 s in the third.
    assert whole["seconds_again"] == pytest.approx(44)
    # A thread costs a dollar a second, whether busy or idle; as long as busy it was idle.
    assert (whole["cost_again"], whole["currency"]) == (pytest.approx(44), "USD")
    assert (part["title"], part["runs"], part["seconds_again"]) == ("sum", 2, pytest.approx(10))
    assert "read-parquet and 1 step after it ran 3 times since" in whole["sentence"]
    assert "for 2 users, on 3 clusters" in whole["sentence"]
    [first, _] = place.answer("repeats")["items"]
    assert first["name"] == READ


@pytest.mark.parametrize(
    ("clusters", "days", "users", "instead"),
    [
        ("aa", (1.0, 1.0 - 30 / 86_400), ("ada", "ada"), "compute"),
        ("aa", (1.0, 0.5), ("ada", "ada"), "persist"),
        ("aa", (1.0, 1.0 - 30 / 86_400), ("ada", "li"), "persist"),
        ("ab", (1.0, 1.0 - 30 / 86_400), ("ada", "ada"), "file"),
    ],
)
def test_what_would_have_run_it_once_depends_on_where_and_when(
    place: Place, clusters: str, days: tuple[float, ...], users: tuple[str, ...], instead: str
) -> None:
    for cluster, day, user in zip(clusters, days, users, strict=True):
        run(place, READ, day=day, cluster=cluster, user=user)
    [work] = repeats(place)
    assert work["instead"] == instead


@pytest.mark.parametrize(
    "fields",
    [
        {"tokenized": None},  # an older exporter
        {"tokenized": False},  # a name of the user's own
        {"completed": 40, "states": {"memory": 40, "released": 60}},  # cancelled
        {"seconds": {"compute": 0.2}},  # not worth a word
    ],
)
def test_what_is_not_known_to_be_equal_or_whole_does_not_count(
    place: Place, fields: dict[str, Any]
) -> None:
    run(place, READ, day=2, **fields)
    run(place, READ, day=1, **fields)
    assert repeats(place) == []


def test_runs_with_another_number_of_tasks_or_from_before_a_month_do_not_count(
    place: Place,
) -> None:
    ids = [run(place, READ, day=35), run(place, READ, day=1.5, tasks=70, completed=70)]
    ids.append(run(place, READ, day=2))
    assert repeats(place) == []
    ids.append(run(place, READ, day=1))
    [work] = repeats(place)
    assert work["runs"] == 2
    pages = [
        place.page(f"/clusters/Scheduler-{place.workspace}-{n}/computations/{id}")
        for n, id in enumerate(ids, start=1)
    ]
    assert [work["sentence"] in page for page in pages] == [False, False, True, True]


@pytest.mark.parametrize("table", [schema.computation, schema.group_run])
def test_a_run_that_is_too_old_to_count_is_removed_without_the_repeats(
    place: Place, table: Table
) -> None:
    old = run(place, READ, day=35, cluster="old")
    run(place, READ, day=2)
    run(place, READ, day=1)
    [work] = repeats(place)
    key = (place.workspace, f"Scheduler-{place.workspace}-old", old)
    remove_keys(place.service.engine, table, [(*key, READ)[: len(table.primary_key)]])
    assert repeats(place) == [work]


def test_the_page_of_a_computation_and_the_list_say_it(place: Place) -> None:
    ids = [run(place, READ, CLEAN, day=day, cluster="one") for day in (3, 2, 1)]
    [work] = repeats(place)
    page = place.page(f"/clusters/Scheduler-{place.workspace}-one/computations/{ids[0]}")
    assert work["sentence"] in page
    assert work["advice"] in page
    listed = place.page("/repeats")
    assert "read-parquet and 1 step after it" in listed
    assert "A persist of getitem would have run it once; it takes 977 KiB" in listed
    assert place.session.get(f"{place.service.url}/repeats.csv", timeout=30).text.count("\n") == 2
    assert place.page("/jobs").count("Repeated work") == 1


def test_since_selects_by_the_newest_run(place: Place) -> None:
    run(place, READ, day=9)
    run(place, READ, day=8)
    assert len(repeats(place, since=str(NOW - 10 * 86_400))) == 1
    assert repeats(place, since=str(NOW - 7 * 86_400)) == []


def test_equal_groups_of_other_workspaces_are_not_counted(
    place: Place, shared_service: ServiceProcess
) -> None:
    other = Place(shared_service)
    run(other, READ, day=2)
    run(place, READ, day=1)
    assert repeats(place) == []
    assert repeats(other) == []


def test_a_run_that_is_sent_again_counts_once(place: Place) -> None:
    run(place, READ, day=2, cluster="one")
    place.sent -= 1
    run(place, READ, day=2, cluster="one")
    assert repeats(place) == []


def test_removed_runs_leave_nobodys_name(place: Place) -> None:
    run(place, READ, day=3, cluster="one")
    id = run(place, READ, day=2, cluster="two", user="li")
    assert len(repeats(place)) == 1
    key = (place.workspace, f"Scheduler-{place.workspace}-two", id)
    remove_keys(place.service.engine, schema.computation, [key])
    assert repeats(place) == []
    run(place, READ, day=1, cluster="one")
    [work] = repeats(place)
    assert (work["runs"], work["users"]) == (2, ["ada"])


def test_a_deleted_user_is_named_nowhere(place: Place) -> None:
    run(place, READ, day=3, cluster="one")
    run(place, READ, day=2, cluster="one", user="li")
    [work] = repeats(place)
    assert sorted(work["users"]) == ["ada", "li"]
    whose = Whose(place.workspace, user="li")
    assert [*deletion.delete(place.service.engine, whose, Throttle(1.0))]
    assert repeats(place) == []


def test_python_and_the_command_line_list_repeats(place: Place) -> None:
    run(place, READ, day=2)
    run(place, READ, day=1)
    [work] = repeats(place)
    with dask.config.set({"daskscope.endpoint": place.service.url, "daskscope.token": place.token}):
        [found] = daskscope.list_repeats()
        result = CliRunner().invoke(cli, ["list", "repeats"], catch_exceptions=False)
    assert found["sentence"] == work["sentence"]
    assert found["last_at"].tzinfo is not None
    assert "read-parquet" in result.output
    assert "file" in result.output
