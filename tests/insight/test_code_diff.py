"""Diffs of code between two runs: as Python's own, and bounded in what they cost."""

from __future__ import annotations

import difflib
import random

from hypothesis import given
from hypothesis import strategies as st

from daskscope_service.insight.jobs.code_diff import TOO_DIFFERENT, CodeDiffer

_TEXTS = st.lists(st.sampled_from(["", "x = 1", "y = 2", "    return x", "f(x)"]), max_size=30)


@given(_TEXTS, _TEXTS)
def test_a_diff_is_that_of_python(before: list[str], after: list[str]) -> None:
    texts = "\n".join(before), "\n".join(after)
    a, b = (text.splitlines() for text in texts)
    expected = difflib.unified_diff(a, b, "first run", "second run", lineterm="")

    assert CodeDiffer().diff(*texts) == list(expected)


def test_lines_that_repeat_so_that_a_diff_would_take_hours_are_not_compared() -> None:
    chance = random.Random(1)
    letters = [chr(0x4E00 + n) for n in range(110)]
    texts = ["\n".join(chance.choices(letters, k=9_900)) for _ in "ab"]

    assert CodeDiffer().diff(*texts) == [TOO_DIFFERENT]


def test_all_diffs_of_a_comparison_share_one_bound() -> None:
    differ, alike = CodeDiffer(), ["\n".join([line] * 190 + [end]) for line, end in ("ab", "ac")]
    first = differ.diff(*alike)
    diffs = [differ.diff(*alike) for _ in range(200)]

    assert first[-2:] == ["-b", "+c"]
    assert diffs[-1] == [TOO_DIFFERENT]


def test_a_program_of_the_usual_size_is_compared() -> None:
    lines = [f"    step_{n} = run({n})" if n % 3 else "" for n in range(3_000)]
    edited = [*lines[:1_000], "    import more", *lines[1_001:]]

    diff = CodeDiffer().diff("\n".join(lines), "\n".join(edited))

    assert [line for line in diff if line[0] in "-+"][2:] == [
        "-    step_1000 = run(1000)",
        "+    import more",
    ]
