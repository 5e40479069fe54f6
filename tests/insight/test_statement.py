"""The statement that set a computation going, whole and on one line, out of code that was cut."""

from __future__ import annotations

import pytest

from daskscope_service.insight.statement import statement_at

#: Code, a line of it from 0, and the statement that the line belongs to.
CASES = {
    "one line": ("x = 1\ny = x.compute()  # now\nz = 2", 1, "y = x.compute()  # now"),
    "arguments on lines of their own": (
        "def run(client):\n    a = client.map(\n        load,\n        names,\n    )\n    return a",
        1,
        "a = client.map(load, names,)",
    ),
    "a chain": (
        "total = (\n    frame.groupby('x')\n    .sum()\n    .compute()\n)\nprint(total)",
        1,
        "total = (frame.groupby('x').sum().compute())",
    ),
    "a line that is not its first": ("a = f(\n    g(1),\n    2,\n)", 1, "a = f(g(1), 2,)"),
    "with a backslash": ("a = 1 + \\\n    f()\nb = 2", 0, "a = 1 + f()"),
    "the head of a loop": (
        "for x in wait(\n    futures\n):\n    print(x)",
        0,
        "for x in wait(futures):",
    ),
    "with text of several lines": (
        'q = sql("""select\n  1""", con)\nr = 2',
        0,
        'q = sql("""select 1""", con)',
    ),
    "cut before it ends": ("futures = client.map(\n    load,", 0, "futures = client.map("),
    "one of several on its line": (
        "import dask; x = make([1, 2]); y = dask.compute(x, z=f(1)); print(y)",
        0,
        "y = dask.compute(x, z=f(1))",
    ),
    "several of a line that may compute": (
        "a = x.compute(); b = y.compute()",
        0,
        "a = x.compute(); b = y.compute()",
    ),
    "several of a line that do not say that they compute": ("a = f(); g(a)", 0, "a = f(); g(a)"),
    "a semicolon in a text": ("x.compute(name=';')", 0, "x.compute(name=';')"),
    "no Python": ("%%time (\nx.compute()", 0, "%%time ("),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_whole_where_it_can_be_found_and_its_line_elsewhere(case: str) -> None:
    text, place, whole = CASES[case]
    assert statement_at(text.split("\n"), place) == whole


def test_of_long_code_no_more_is_read_than_what_is_around() -> None:
    lines = [f"value_{n} = {n}" for n in range(10_000)]
    lines[5_000:5_001] = ["done = client.submit(", "    work,", ")"]
    assert statement_at(lines, 5_000) == "done = client.submit(work,)"


def test_code_that_takes_long_to_read_is_its_line_alone() -> None:
    lines = ["f'" + "{" * 20_000, "client.submit(", ")"]
    assert statement_at(lines, 1) == "client.submit("
    assert statement_at(["x", "(" * 50_000], 1) == "(" * 50_000
