"""When two failures are the same."""

from __future__ import annotations

import pickle
import subprocess
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dask.typing import Key
from distributed.core import error_message
from distributed.protocol.serialize import Serialized, serialize, to_serialize

from daskscope.observe.errors.exception_types import exception_type
from daskscope.observe.errors.failures import Failures, fingerprint

pytestmark = pytest.mark.contract


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


def serialized(exception: Any) -> Serialized:
    """As it comes over the wire."""
    return Serialized(*serialize(exception.data))


def _traceback(*frames: tuple[str, int, str]) -> str:
    return "".join(
        f'  File "{file}", line {line}, in {function}\n    some code\n'
        for file, line, function in frames
    )


MINE = ("/home/ann/etl/load.py", 10, "load")
PANDAS = ("/opt/env/lib/python3.12/site-packages/pandas/io/csv.py", 99, "read")


class ByFunction(Exception):
    def __reduce__(self) -> Any:
        return (made, (type(self), *self.args))


def made(kind: type[Exception], *args: object) -> Exception:
    return kind(*args)


def _of_no_module() -> Exception:
    class Local(KeyError):
        pass

    return Local("x")


class _SaysOtherwise(Exception):
    def __repr__(self) -> str:
        return "ValueError"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("x"), "ValueError"),
        (KeyError((1, 2)), "KeyError"),
        (subprocess.TimeoutExpired("ls", 1), "TimeoutExpired"),
        (ByFunction("x"), "ByFunction"),
        (_of_no_module(), "Local"),
        (_SaysOtherwise("x"), "_SaysOtherwise"),
        (Unpicklable("x"), "Exception"),
        (ValueError(bytearray(10_000_000)), "ValueError"),
    ],
)
def test_the_type_is_that_of_the_pickled_exception(error: Exception, kind: str) -> None:
    try:
        raise error
    except Exception as raised:
        message = error_message(raised)
    for exception in (message["exception"], serialized(message["exception"])):
        assert exception_type(message["exception_text"], exception) == kind


@pytest.mark.parametrize(
    "exception", [None, to_serialize(b"no pickle"), to_serialize(b"\x80\x05.")]
)
def test_of_what_is_no_pickle_it_is_not_known(exception: object) -> None:
    assert exception_type("SECRET", exception) == "Exception"


def test_an_edit_elsewhere_another_folder_and_another_library_do_not_matter() -> None:
    one = fingerprint("KeyError", "load", _traceback(MINE, PANDAS))
    moved = ("C:\\Users\\bob\\load.py", 25, "load")
    newer = ("/usr/lib/python3.13/site-packages/pandas/io/other.py", 5, "read_fast")
    assert fingerprint("KeyError", "load", _traceback(moved, newer)) == one
    compiled = ("pyarrow/array.pxi", 5, "pyarrow.lib.Array.cast")
    assert fingerprint("KeyError", "load", _traceback(moved, compiled)) == one
    pythons_own = ("C:\\Python312\\Lib\\json\\decoder.py", 5, "decode")
    assert fingerprint("KeyError", "load", _traceback(moved, pythons_own)) == one


def test_an_edit_of_a_cell_in_a_notebook_does_not_matter() -> None:
    cells = [(f"/tmp/ipykernel_{process}/{process * 7}.py", 1, "load") for process in (12, 3456)]
    one, other = (fingerprint("KeyError", "load", _traceback(cell)) for cell in cells)
    assert one == other != fingerprint("KeyError", "load", _traceback(("/tmp/12/84.py", 1, "load")))


_RECURSIVE = """
def walk(depth):
    if not depth:
        raise ValueError(depth)
    if depth % 2:
        return sum([walk(depth - 1)])
    return walk(depth - 1)

def visit(depth):
    return handle(depth)

def handle(depth):
    if not depth:
        raise ValueError(depth)
    return visit(depth - 1)

class Tree:
    def size(self, depth):
        if not depth:
            raise ValueError(depth)
        return self.size(depth - 1)
"""


@pytest.mark.parametrize("call", ["walk", "visit", "Tree().size"])
def test_however_deep_a_recursion_is_it_is_one_failure(tmp_path: Path, call: str) -> None:
    file = tmp_path / "tree.py"
    file.write_text(_RECURSIVE)
    module: dict[str, Any] = {}
    exec(compile(_RECURSIVE, str(file), "exec"), module)
    prints = set()
    for depth in (0, 1, 2, 3, 8, 150):
        try:
            eval(f"{call}({depth})", module)
        except ValueError as error:
            text = "".join(traceback.format_tb(error.__traceback__)[1:])
            prints.add(fingerprint("ValueError", "total", text))
    assert len(prints) == 1


def test_what_calls_nothing_again_keeps_its_fingerprint() -> None:
    assert fingerprint("KeyError", "load", _traceback(MINE, PANDAS)) == "v1-15ffc7d02c0bf0d1"
    decorated = [
        ("/etl/load.py", line, function)
        for line, function in ((3, "wrapper"), (10, "load"), (3, "wrapper"), (20, "parse"))
    ]
    # Two functions with one decorator.
    assert fingerprint("KeyError", "load", _traceback(*decorated)) == "v1-d75e80059ffd870e"


def test_of_what_cannot_be_pickled_pythons_own_types_are_told() -> None:
    unpicklable = serialized(to_serialize(pickle.dumps(Exception("told"))))
    assert exception_type("RecursionError('maximum …')", unpicklable) == "RecursionError"
    assert exception_type("SECRET('maximum …')", unpicklable) == "Exception"


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


def test_the_middle_of_a_very_deep_traceback_is_not_looked_at() -> None:
    # Each frame that is takes a while of the event loop.
    def deep(middle: int) -> str:
        inner = [("/home/ann/walk.py", 1, f"step_{number}") for number in range(middle)]
        first = [("/home/ann/walk.py", 1, f"first_{number}") for number in range(200)]
        last = [("/home/ann/walk.py", 1, f"last_{number}") for number in range(300)]
        return fingerprint("KeyError", "walk", _traceback(*first, *inner, *last))

    assert deep(10) == deep(500) == deep(20_000)
    assert deep(10) != fingerprint("KeyError", "walk", _traceback(MINE))


def _add(failures: Failures, name: str, key: Key = "a-key") -> None:
    failures.add("a computation", name, key, {"exception_text": "ValueError('x')"})


def test_those_that_are_not_seen_for_longest_make_room_and_go_on_from_their_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("daskscope.observe.errors.failures.MAX_FAILURES", 2)
    failures = Failures(Counter())
    for name in ("often", "seldom", "often", "new"):
        _add(failures, name)
    told = {raw.row.function: raw.row for raw in failures.changed(10)}
    assert {name: row.count for name, row in told.items()} == {"often": 2, "new": 1}

    _add(failures, "newer")
    _add(failures, "often")
    again = {raw.row.function: raw.row for raw in failures.changed(10)}["often"]
    assert again.count == 3
    assert again.first_at == told["often"].first_at


def test_retries_that_are_not_told_with_what_failed_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("daskscope.observe.errors.failures.MAX_FAILURES", 1)
    monkeypatch.setattr("daskscope.observe.errors.failures.MAX_RAISED", 2)
    drops: Counter[str] = Counter()
    failures = Failures(drops)
    for name, key in (("a", "forgotten"), ("made-room", ("x", 1)), ("told", "y")):
        _add(failures, name, key)
    for task in ("forgotten", ("x", 1), "y"):
        failures.runs_again(task)
    (told,) = failures.changed(10)
    assert (told.row.function, told.row.retried) == ("told", 1)
    assert drops["retry"] == 2


def test_a_key_of_the_users_own_is_in_no_text_of_an_exception() -> None:
    key = "patient-4711"
    members = [ValueError(f"cannot load {key}"), KeyError(key)]
    error = ExceptionGroup(f"in {key}", members)
    error.add_note(f"while {key} was read")
    try:
        try:
            raise LookupError(key)
        except LookupError as cause:
            raise error from cause
    except ExceptionGroup as raised:
        details: Any = error_message(raised)
    details["exception"] = serialized(details["exception"])
    failures = Failures(Counter())
    failures.add("a computation", "load", key, details)
    (raw,) = failures.changed(10)
    assert len(raw.causes.members) == 2
    assert len(raw.causes.notes) == len(raw.causes.causes) == 1
    texts = (raw.row.message, *raw.causes.notes)
    found = (*raw.causes.causes, *raw.causes.members)
    assert "4711" not in "".join(filter(None, (*texts, *(cause.message for cause in found))))
