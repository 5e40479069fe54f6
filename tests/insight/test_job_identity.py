"""Which runs are one job."""

from __future__ import annotations

import pytest

from daskscope_service.insight.jobs.identity import (
    Call,
    Identity,
    Traits,
    identity_of,
    needs_groups,
    normalised,
)

SCRIPT = "/home/ada/etl/run.py"
GROUPS = {"sum-1": "sum", "inc-1": "inc"}
EDGES = [("sum-1", "inc-1")]


def run(statement: str | None = "total = df.x.sum().compute()", **others: object) -> Traits:
    values: dict[str, object] = {
        "user": "ada",
        "calls": (Call(SCRIPT, "main()"), Call(SCRIPT, statement)),
        "groups": GROUPS,
        "edges": EDGES,
    }
    return Traits(**values | others)  # type: ignore[arg-type]


def found(traits: Traits) -> Identity:
    identity = identity_of(traits)
    assert identity is not None
    return identity


def test_a_name_counts_before_code_and_code_before_shape() -> None:
    assert found(run(spans=("etl", "load"))).level == "name"
    assert found(run(spans=("etl", "load"))).name == "etl / load"
    assert found(run(annotations={"job": "nightly"})).name == "nightly"
    assert found(run(tags={"job": "nightly"}, spans=("load",))).name == "nightly / load"
    assert found(run(spans=("default",))).level == "code"
    assert found(run(statement=None)).level == "shape"
    assert found(run(calls=())).level == "shape"
    assert identity_of(run(calls=(), groups={}, edges=())) is None


def test_a_named_job_is_the_same_whoever_runs_it_and_from_wherever() -> None:
    one = run(spans=("etl",))
    moved = Call("/builds/7/run.py", "total = df.x.sum().compute()")
    assert found(one) == found(run(spans=("etl",), user="bob", calls=(moved,)))


@pytest.mark.parametrize(
    ("deployment", "name"),
    [
        ({"airflow.dag.id": "nightly", "airflow.task.id": "load"}, "nightly / load"),
        ({"dagster.job.name": "etl", "dagster.step.key": "clean"}, "etl / clean"),
        ({"prefect.flow.name": "nightly", "prefect.run.id": "7"}, "nightly"),
        (
            {
                "github.repository.name": "team/etl",
                "github.workflow.name": "test",
                "github.job.name": "slow",
            },
            "team/etl / test / slow",
        ),
        ({"gitlab.project.name": "team/etl", "gitlab.job.name": "test"}, "team/etl / test"),
    ],
)
def test_the_task_of_an_orchestrator_is_a_name(deployment: dict[str, str], name: str) -> None:
    scheduled = found(run(deployment=deployment))
    assert (scheduled.level, scheduled.name) == ("name", name)
    assert found(run(deployment=deployment, tags={"job": "mine"})).name == "mine"
    # Others may use the cluster that it started.
    assert found(run(deployment=deployment, user="bob")) != scheduled
    other = (Call("/home/ada/etl/other.py", "total = df.x.sum().compute()"),)
    assert found(run(deployment=deployment, calls=other)) != scheduled


@pytest.mark.parametrize(
    "calls",
    [
        (Call("/env/lib/python3.12/site-packages/joblib/_dask.py", "client.submit(f)"),),
        (Call("/tmp/ipykernel_311/11.py", "result.compute()"),),
        (),
    ],
    ids=["of a library", "typed in", "none"],
)
def test_two_graphs_of_one_task_are_two_jobs_where_their_calls_say_too_little(
    calls: tuple[Call, ...],
) -> None:
    task = {"airflow.dag.id": "nightly", "airflow.task.id": "load"}
    one = run(deployment=task, calls=calls)
    other = run(deployment=task, calls=calls, groups={"mean-1": "mean"}, edges=())
    assert found(one).level == "name"
    assert found(one) != found(other)
    assert needs_groups(one)


@pytest.mark.parametrize(
    "deployment",
    [
        {"airflow.task.id": "load"},
        {"airflow.dag.id": "nightly"},
        {"github.repository.name": "team/etl"},
        {"gitlab.project.name": "team/etl"},
    ],
)
def test_a_part_of_the_name_of_a_task_is_none(deployment: dict[str, str]) -> None:
    assert found(run(deployment=deployment)) == found(run())


def test_clients_that_did_not_register_are_one_wherever_they_are() -> None:
    here, there = (
        found(run(user=f"unregistered client on 10.0.0.{number}", calls=())) for number in (7, 8)
    )
    assert here == there != found(run(calls=()))


def test_a_batch_job_is_no_name() -> None:
    assert found(run(deployment={"slurm.job.id": "7", "slurm.array.task.id": "3"})) == found(run())


def test_two_calls_under_one_name_are_two_jobs() -> None:
    assert found(run(spans=("etl",))) != found(run("df.to_parquet(out)", spans=("etl",)))


@pytest.mark.parametrize(
    "other",
    [
        run(user="bob"),
        run("total = df.y.sum().compute()"),
        run(calls=(Call("/home/ada/etl/other.py", "total = df.x.sum().compute()"),)),
        run(calls=(Call(SCRIPT, "again()"), Call(SCRIPT, "total = df.x.sum().compute()"))),
    ],
    ids=["another user", "another statement", "another file", "called from elsewhere"],
)
def test_another_call_is_another_job(other: Traits) -> None:
    assert found(run()) != found(other)


def test_more_data_and_other_arguments_leave_a_job_what_it_is() -> None:
    more = {"sum-2": "sum", "sum-3": "sum", "inc-9": "inc"}
    edges = [("sum-2", "sum-3"), ("sum-3", "inc-9")]
    load = 'df = load("s3://a/2026-01-31", n=3).compute()  # daily'
    same = "df = load('s3://b/2026-02-01',\n    n = 12).compute()"
    assert found(run(load)) == found(run(same, groups=more, edges=edges))
    assert found(run(calls=())) == found(run(calls=(), groups=more, edges=edges))


def test_the_folder_of_a_checkout_does_not_matter_and_that_of_a_package_neither() -> None:
    def at(file: str) -> Identity:
        own = Call(file, "main()")
        return found(run(calls=(own, Call(file, "x.compute()"))))

    assert at("/builds/project-1234/run.py") == at("/builds/project-1235/run.py")
    assert at("/tmp/checkout.0f3c9ab/run.py") == at("/tmp/checkout.77ab01c/run.py")
    assert at("/home/ada/run.py") != at("/home/ada/walk.py")


def test_code_that_was_typed_in_counts_with_its_shape() -> None:
    def cell(file: str, groups: object = GROUPS, edges: object = EDGES) -> Traits:
        call = Call(file, "result.compute()")
        return run(calls=(call,), groups=groups, edges=edges)

    first = cell("/tmp/ipykernel_311/11.py")
    again = cell("/tmp/ipykernel_900/12.py")
    assert found(first).level == "code"
    assert found(first) == found(again) == found(cell("<ipython-input-3-ab>"))
    assert found(first) != found(cell("<stdin>", groups={"inc-1": "inc"}, edges=()))
    assert needs_groups(first)
    assert not needs_groups(run())


def test_a_call_that_a_library_makes_for_all_its_users_is_no_code_of_theirs() -> None:
    library = Call("/env/lib/python3.12/site-packages/joblib/_dask.py", "client.submit(f)")
    assert found(run(calls=(library,))).level == "shape"
    assert found(run(calls=(Call(SCRIPT, "fit(x)"), library))).level == "code"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ('x = f("a",  3)', "x=f('',0)"),
        ("for x in  y :", "for x in y:"),
        ("x = f(f'{a} {f\"{b}\"} c', b'd', y) # why", "x=f('','',y)"),
        ("x = (", "x=("),
        ("'open", "'open"),
    ],
)
def test_statements_are_the_same_up_to_numbers_texts_and_spaces(
    statement: str, expected: str
) -> None:
    assert normalised(statement) == expected


def test_a_very_long_statement_is_not_taken_apart() -> None:
    numbers = ", ".join(["1"] * 5_000)

    assert normalised(f"f({numbers})") == f"f({numbers})"
    assert normalised("f(1,   1)") == "f(0,0)"
