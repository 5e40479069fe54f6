"""Which lines of the user's code are kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from daskscope.observe.code import cut

FILE = "\n".join(f"line {number}" for number in range(1, 101))


def test_the_lines_around_the_call_are_kept() -> None:
    code = cut(FILE, line=50, relative_line=49, file="a.py", context_lines=2, max_bytes=1000)
    assert code.text.splitlines() == ["line 48", "line 49", "line 50", "line 51", "line 52"]
    assert code.first_line == 48
    assert code.cut


def test_a_form_feed_does_not_shift_the_lines() -> None:
    code = cut(
        "a\n\x0c\nb\nc\n", line=3, relative_line=2, file="a.py", context_lines=0, max_bytes=9
    )
    assert (code.first_line, code.text) == (3, "b")


def test_a_short_function_is_kept_whole() -> None:
    code = cut("def f():\n    go()\n", 31, 1, "a.py", 20, 1000)
    assert (code.first_line, code.text, code.cut) == (30, "def f():\n    go()", False)


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), min_size=1),
    st.integers(0, 200),
    st.integers(0, 30),
    st.integers(1, 400),
)
def test_the_calling_line_is_always_among_what_is_kept_and_never_more_than_allowed(
    lines: list[str], called: int, context: int, max_bytes: int
) -> None:
    text = "\n".join(lines)
    lines = text.removesuffix("\n").split("\n")
    called = min(called, len(lines) - 1)
    code = cut(text, called + 1, called, "a.py", context, max_bytes)
    assert len(code.text.encode()) <= max_bytes
    kept = code.text.split("\n")
    at = called + 1 - code.first_line
    assert 0 <= at < len(kept)
    assert lines[called].startswith(kept[at])
