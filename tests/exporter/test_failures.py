"""When two failures are the same."""

from __future__ import annotations

import pytest

from daskscope.observe.failures import exception_type, fingerprint


def _traceback(*frames: tuple[str, int, str]) -> str:
    return "".join(
        f'  File "{file}", line {line}, in {function}\n    some code\n'
        for file, line, function in frames
    )


MINE = ("/home/ann/etl/load.py", 10, "load")
PANDAS = ("/opt/env/lib/python3.12/site-packages/pandas/io/csv.py", 99, "read")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError('x')", "ValueError"),
        ("my.module.Error()", "my.module.Error"),
        ("KeyError((1, 2))", "KeyError"),
        ("<an odd repr>", "Exception"),
    ],
)
def test_the_type_is_read_off_the_repr(text: str, kind: str) -> None:
    assert exception_type(text) == kind


def test_an_edit_elsewhere_another_folder_and_another_library_do_not_matter() -> None:
    one = fingerprint("KeyError", "load", _traceback(MINE, PANDAS))
    moved = ("C:\\Users\\bob\\load.py", 25, "load")
    newer = ("/usr/lib/python3.13/site-packages/pandas/io/other.py", 5, "read_fast")
    assert fingerprint("KeyError", "load", _traceback(moved, newer)) == one


@pytest.mark.parametrize(
    ("kind", "function", "frames"),
    [
        ("ValueError", "load", (MINE, PANDAS)),
        ("KeyError", "store", (MINE, PANDAS)),
        ("KeyError", "load", (("/home/ann/etl/load.py", 10, "check"), PANDAS)),
        ("KeyError", "load", (PANDAS,)),
    ],
)
def test_another_type_function_or_frame_is_another_failure(
    kind: str, function: str, frames: tuple[tuple[str, int, str], ...]
) -> None:
    one = fingerprint("KeyError", "load", _traceback(MINE, PANDAS))
    assert fingerprint(kind, function, _traceback(*frames)) != one
