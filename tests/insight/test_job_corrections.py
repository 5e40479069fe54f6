"""Which job a run belongs to once people have merged and split jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daskscope_service.insight.jobs.corrections import (
    Step,
    corrected,
    ends_of,
    jobs_before,
    merged_into,
    split_in_words,
    undo_in_words,
)
from daskscope_service.insight.jobs.identity import Call, Traits, part_key

KEYS = {"code": "c", "shape": "s"}


def job_of(id: str, steps: dict[str, Step], **keys: str) -> str | None:
    return corrected(id, steps, (KEYS | keys).get)


def test_merges_and_splits_follow_each_other() -> None:
    steps = {
        "a": Step("merge", "b"),
        "b": Step("split", "code"),
        "b-c": Step("split", "shape"),
        "b-c-s": Step("merge", "z"),
    }
    assert job_of("x", steps) == "x"
    assert job_of("a", steps) == job_of("b", steps) == "z"
    assert job_of("b", steps, shape="t") == "b-c-t"
    assert job_of("b", steps, code="d") == "b-d"
    assert merged_into("a", steps) == "b"
    jobs = ["z", "b-d", "b-c-t", "x", "bb"]
    assert ends_of("a", steps, jobs) == {"z", "b-d", "b-c-t"}
    assert ends_of("x", steps, jobs) == {"x"}


def test_jobs_before_are_those_whose_runs_came_here() -> None:
    steps = {"a": Step("merge", "b"), "b": Step("split", "code"), "b-c": Step("merge", "z")}
    assert jobs_before("z", steps) == {"b-c", "b", "a"}
    assert jobs_before("b-d", steps) == {"b", "a"}
    assert jobs_before("x", steps) == set()


def test_what_is_not_known_yet_is_no_job() -> None:
    steps = {"a": Step("split", "shape")}
    assert corrected("a", steps, lambda by: None) is None
    assert corrected("b", steps, lambda by: None) == "b"


IDS = st.sampled_from(["a", "b", "a-c", "a-s", "a-c-s", "b-c"])
STEPS = st.dictionaries(
    IDS,
    st.one_of(
        IDS.map(lambda id: Step("merge", id)),
        st.sampled_from(["code", "shape"]).map(lambda by: Step("split", by)),
    ),
)


@given(IDS, STEPS)
def test_it_always_ends_and_a_run_is_where_the_undo_looks_for_it(
    id: str, steps: dict[str, Step]
) -> None:
    found = job_of(id, steps)
    assert found is not None
    merged_into(id, steps)
    assert found in ends_of(id, steps, [found])


def test_runs_of_one_code_and_user_stay_together() -> None:
    def run(user: str, text: str, *groups: str) -> Traits:
        return Traits(user, calls=[Call("/a.py", text)], groups={f"{g}-1": g for g in groups})

    one, other = run("ada", "f(1)", "sum"), run("ada", "f(2)", "max")
    assert part_key(one, "code") == part_key(other, "code")
    assert part_key(one, "shape") != part_key(other, "shape")
    assert part_key(one, "code") != part_key(run("bob", "f(1)", "sum"), "code")
    assert part_key(one, "code") != part_key(run("ada", "g(1)", "sum"), "code")


def test_words_say_how_many_jobs_a_split_makes_and_what_ends_with_it() -> None:
    assert "Its newest 18 runs become 3 jobs, of 10, 7 and 1 runs" in split_in_words(
        "code", [7, 1, 10]
    )
    assert "All of its newest 9 runs have the same shape" in split_in_words("shape", [9])
    assert "are one job. It has one run now. The" in split_in_words("shape", [1])
    assert "are one job. It has no runs now. The" in split_in_words("shape", [])
    assert undo_in_words("split", "code", 0).endswith("become one again.")
    assert undo_in_words("split", "code", 2).endswith("2 corrections of these jobs end with it.")
